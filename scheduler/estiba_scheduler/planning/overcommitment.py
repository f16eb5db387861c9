"""A device that holds more than it has left, because another process took some: shrink, and put away what must go."""

from __future__ import annotations

from ..domain import Device, PreemptionMode, Reason
from .draft import Draft
from .residency import Shortage, divide
from .rungs import allowed, put_away
from .running import Running, running_on, shrink
from .standing import HORIZON_S
from .victims import yield_cost
from .wording import size, span


def give_back(draft: Draft) -> None:
    """Bring every device back under its capacity."""
    for device in draft.cluster.devices.values():
        if draft.cluster.reachable(device.node) and draft.ledger.held_then(device.uuid) > draft.ledger.capacity(device):
            _give_back(draft, device, running_on(draft, device))


def _give_back(draft: Draft, device: Device, running: list[Running]) -> None:
    while running:
        without = frozenset(r.instance.id for r in running)
        others = draft.ledger.held_then(device.uuid, without)
        host = draft.ledger.host_room_then(device.node, without)
        fit = divide([r.item for r in running], draft.ledger.capacity(device) - others, host)
        if not isinstance(fit, Shortage):
            for r in running:
                if fit[r.instance.id].budget_bytes < r.instance.spec.budget_bytes:
                    shrink(draft, r, fit[r.instance.id], _taken(device), None)
            return
        if not _put_one_away(draft, device, running):
            return


def _put_one_away(draft: Draft, device: Device, running: list[Running]) -> bool:
    priced = []
    for r in running:
        standing, own = r.item.standing, frozenset({r.instance.id})
        profile = draft.profile(standing, device.uuid)
        if profile is None or standing.deployment.policies.preemption is PreemptionMode.NEVER:
            continue
        node = device.node
        room = min(draft.ledger.host_room_now(node, own), draft.ledger.host_room_then(node, own))
        ways = [put_away(profile, rung) for rung in allowed(standing.deployment, profile)]
        way = next((w for w in ways if w.host_bytes <= room), None)
        if way is not None:
            priced.append((yield_cost(standing, way, HORIZON_S), r.instance.id, r, way))
    if not priced:
        for r in running:
            draft.say(
                r.item.standing.id,
                Reason.ALL_PINNED,
                f"{device.uuid} is over its memory, {_taken(device)}, and nothing on it may be put away",
            )
        return False
    _, _, r, way = min(priced, key=lambda p: p[:2])
    text = f"{way.words}: {device.uuid} is over its memory, {_taken(device)}; back in {span(way.wake_s)}"
    draft.put_away(r.instance, way, Reason.PREEMPTED, text)
    draft.say(r.item.standing.id, Reason.PREEMPTED, text, wake_s=way.wake_s)
    running.remove(r)
    return True


def _taken(device: Device) -> str:
    if device.foreign_bytes:
        return f"{size(device.foreign_bytes)} are held by other processes"
    return f"our models may hold {size(device.usable_bytes)}"
