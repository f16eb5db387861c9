"""Resident bytes of what runs: grown into free room, and moved to where they buy more."""

from __future__ import annotations

from dataclasses import replace

from ..domain import Device, Reason
from .allotment import KV_PRESSURE, Allotment, Item
from .draft import START_MARGIN_S, Draft
from .residency import Shortage, divide
from .running import Running, running_on, shrink
from .wording import share, span

WORTHWHILE = 0.05
"""Predicted change of decode time below which a resize is not worth its disturbance."""
WORTH_MOVING = 0.10
"""Share of the device's weighted decode time that moving bytes between models must save."""
MORE_KV = 1.25
"""Factor by which a KV cache must grow for a resize to be worth it."""
COOL_DOWN_S = 10.0
"""Time between voluntary resizes on one device."""


def rebalance(draft: Draft) -> None:
    """One device after the other; devices where something is in progress are left alone."""
    for device in draft.cluster.devices.values():
        if draft.cluster.takes_placements(device) and _quiet(draft, device):
            running = running_on(draft, device)
            if running:
                _improve(draft, device, running)


def _quiet(draft: Draft, device: Device) -> bool:
    """Nothing on the device is in progress, and nobody waits for room on it."""
    settled = all(i.settled for i in draft.cluster.on(device.uuid))
    touched = any(a.device == device.uuid for a in draft.actions)
    waited_for = any(on == device.uuid and not _grower(draft, d, on) for d, on in draft.reservations)
    return settled and not touched and not waited_for


def _grower(draft: Draft, deployment: str, device: str) -> bool:
    standing = draft.standings.get(deployment)
    return standing is not None and any(i.spec.device == device for i in standing.up)


def _rooms(draft: Draft, device: Device, running: list[Running]) -> tuple[int, int]:
    without = frozenset(r.instance.id for r in running)
    room = min(
        draft.ledger.room_then(device, "", without) + draft.ledger.reserved(device.uuid),
        draft.ledger.room_now(device, without),
    )
    host = min(draft.ledger.host_room_then(device.node, without), draft.ledger.host_room_now(device.node, without))
    return room, host


def _improve(draft: Draft, device: Device, running: list[Running]) -> None:
    room, host = _rooms(draft, device, running)
    cooled_at = draft.last_resize_at.get(device.uuid, -COOL_DOWN_S) + COOL_DOWN_S
    grown = divide([_only_up(r) for r in running], room, host)
    if not isinstance(grown, Shortage):
        growing = [r for r in running if _worth_growing(r, grown[r.instance.id])]
        ready = [
            r for r in growing if draft.now >= cooled_at or (r.item.standing.id, device.uuid) in draft.reservations
        ]
        for r in ready:
            _grow(draft, device, r, grown[r.instance.id])
        if growing:
            if len(ready) < len(growing):
                draft.due(cooled_at)
            return
    best = divide([r.item for r in running], room, host)
    if isinstance(best, Shortage) or not _worth_moving(running, best):
        return
    if draft.now < cooled_at:
        draft.due(cooled_at)
        return
    _move(draft, device, running, best)


def _only_up(r: Running) -> Item:
    """The item restricted to what it has or more."""
    spec = r.instance.spec
    kept = tuple(o for o in r.item.options if o.resident_bytes >= spec.resident_bytes)
    floor = max(r.item.kv_floor, spec.kv_bytes)
    more = floor - r.item.kv_floor
    options = tuple(replace(o, base_bytes=o.base_bytes + int(more * r.item.factor) + 1) for o in kept)
    return replace(r.item, options=options or r.item.options[-1:], kv_floor=floor, kv_want=max(floor, r.item.kv_want))


def _worth_growing(r: Running, given: Allotment) -> bool:
    faster = given.tpot_s < r.tpot_s * (1.0 - WORTHWHILE)
    used = r.instance.status.kv_used_bytes if r.instance.status else 0
    more_kv = given.kv_bytes > r.instance.spec.kv_bytes * MORE_KV and used >= KV_PRESSURE * r.instance.spec.kv_bytes
    return given.budget_bytes > r.instance.spec.budget_bytes and (faster or more_kv)


def _grow(draft: Draft, device: Device, r: Running, given: Allotment) -> None:
    text = (
        f"grows from {_resident(r)} to {share(given.resident_bytes / r.item.footprint.weight_bytes)} resident: "
        f"predicted {span(given.tpot_s)} a token instead of {span(r.tpot_s)}; {device.uuid} has the room"
    )
    draft.release(r.item.standing.id, device.uuid)
    draft.resize(r.instance, given, Reason.GROWN, text)
    draft.say(r.item.standing.id, Reason.GROWN, text, tpot_s=given.tpot_s)


def _worth_moving(running: list[Running], best: dict[str, Allotment]) -> bool:
    before = sum(r.loss for r in running)
    after = sum(best[r.instance.id].loss for r in running)
    return before - after > WORTH_MOVING * sum(r.whole for r in running)


def _move(draft: Draft, device: Device, running: list[Running], best: dict[str, Allotment]) -> None:
    """Shrinks now; who gains grows in a later pass, into room that is reserved for it meanwhile."""
    givers = [r for r in running if best[r.instance.id].budget_bytes < r.instance.spec.budget_bytes]
    takers = [r for r in running if best[r.instance.id].budget_bytes > r.instance.spec.budget_bytes]
    if not givers or not takers or not _host_takes(draft, device, givers, best):
        return
    first = max(takers, key=lambda r: (r.item.worth, r.instance.id))
    for r in givers:
        shrink(
            draft,
            r,
            best[r.instance.id],
            f"where {first.item.standing.deployment.name} gains more from it",
            first.item.standing.id,
        )
    until = draft.now + START_MARGIN_S
    for r in takers:
        extra = best[r.instance.id].budget_bytes - r.instance.spec.budget_bytes
        draft.reserve(r.item.standing.id, device.uuid, extra, until)


def _host_takes(draft: Draft, device: Device, givers: list[Running], best: dict[str, Allotment]) -> bool:
    """Host memory holds what leaves the device now, while the takers' weights are still in it, too."""
    more = 0
    for r in givers:
        holding = draft.ledger.holding(r.instance.id)
        more += max(0, best[r.instance.id].host_bytes - (holding.host_now if holding else 0))
    return more <= draft.ledger.host_room_now(device.node)


def _resident(r: Running) -> str:
    return share(r.instance.status.resident_fraction if r.instance.status else 0.0)
