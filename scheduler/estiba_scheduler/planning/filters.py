"""Which devices a deployment may use, one small test each; a device that fails one is told why."""

from __future__ import annotations

from collections.abc import Callable

from ..domain import Device, DeviceHealth
from .draft import Draft
from .standing import Standing
from .wording import span

Filter = Callable[[Draft, Standing, Device], str]
"""Returns what speaks against the device, or nothing."""


def chosen_by_user(draft: Draft, standing: Standing, device: Device) -> str:
    wanted = standing.deployment.devices
    if not wanted or device.uuid in wanted or device.product in wanted:
        return ""
    return f"it may use only {', '.join(wanted)}"


def healthy(draft: Draft, standing: Standing, device: Device) -> str:
    if device.health is DeviceHealth.HEALTHY:
        return ""
    return f"it is {device.health}" + (f" ({device.detail})" if device.detail else "")


def reporting(draft: Draft, standing: Standing, device: Device) -> str:
    if draft.cluster.reachable(device.node):
        return ""
    age = draft.now - draft.cluster.nodes[device.node].reported_at
    return f"node {device.node} was last heard of {span(age)} ago"


def profiled(draft: Draft, standing: Standing, device: Device) -> str:
    if draft.profile(standing, device.uuid) is not None:
        return ""
    return f"there is no profile for {device.product}"


def not_taken_by_itself(draft: Draft, standing: Standing, device: Device) -> str:
    """At most one replica a device."""
    if any(i.spec.device == device.uuid for i in (*standing.up, *standing.failed)):
        return "a replica is on it already"
    return ""


FILTERS: tuple[Filter, ...] = (chosen_by_user, healthy, reporting, profiled, not_taken_by_itself)


def usable(draft: Draft, standing: Standing) -> tuple[list[Device], dict[str, str]]:
    """Devices that pass every filter, and what speaks against each of the others."""
    passed, objections = [], {}
    for device in draft.cluster.devices.values():
        objection = next((o for f in FILTERS if (o := f(draft, standing, device))), "")
        if objection:
            objections[device.uuid] = objection
        else:
            passed.append(device)
    return passed, objections
