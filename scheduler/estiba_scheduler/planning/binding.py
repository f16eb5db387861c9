"""Which constraint binds when a deployment can't be brought up, said with the numbers."""

from __future__ import annotations

from dataclasses import dataclass

from ..domain import Reason
from .candidates import Candidate
from .draft import Draft
from .scenario import room_if_all_yield
from .standing import Standing
from .victims import Neighbour
from .wording import names, size, span

RELAXED = (Reason.QUANTUM, Reason.WAITING_FOR_ROOM, Reason.LOWER_PRIORITY, Reason.ALL_PINNED)
"""Obstacles from the one that passes soonest to the one that does not pass."""


@dataclass(frozen=True, slots=True)
class Binding:
    rank: int  # lower is nearer to being solved
    reason: Reason
    message: str
    numbers: dict[str, float]
    again_at: float | None


def binding(draft: Draft, waiting: Standing, candidate: Candidate, around: list[Neighbour]) -> Binding:
    """Lift one kind of obstacle after the other: the last one lifted before it would fit is the one that binds."""
    need = candidate.item.options[0].base_bytes
    free = max(0, draft.ledger.room_then(candidate.device, waiting.id, candidate.own))
    numbers = {"needed_bytes": float(need), "free_bytes": float(free)}
    head = f"needs {size(need)} on {candidate.device.uuid}, {size(free)} free"
    away = [n for n in around if n.ways]
    stay = [n for n in around if not n.ways]
    if room_if_all_yield(draft, waiting, candidate, away, stay) >= 0:
        return _host(draft, candidate, numbers, away)
    for rank, reason in enumerate(RELAXED, start=1):
        lifted = [n for n in stay if n.blocked is reason]
        away, stay = away + lifted, [n for n in stay if n.blocked is not reason]
        if lifted and room_if_all_yield(draft, waiting, candidate, away, stay) >= 0:
            here = sorted({n.name for n in lifted if n.frees_here})
            until = min((n.until for n in lifted if n.until is not None), default=None)
            return Binding(rank, reason, f"{head}; {_because(draft, reason, here, until)}", numbers, until)
    foreign = candidate.device.foreign_bytes + draft.ledger.unaccounted(candidate.device)
    usable = draft.ledger.placeable(candidate.device)
    numbers |= {"usable_bytes": float(usable), "foreign_bytes": float(foreign)}
    held = f"; {size(foreign)} are held by other processes" if foreign else ""
    return Binding(
        len(RELAXED) + 1,
        Reason.INSUFFICIENT_MEMORY,
        f"needs at least {size(need)} on {candidate.device.uuid}, where our models may hold {size(usable)}{held}",
        numbers,
        None,
    )


def _because(draft: Draft, reason: Reason, deployments: list[str], until: float | None) -> str:
    who = names(deployments) if deployments else "another"
    one = len(deployments) <= 1
    if reason is Reason.QUANTUM:
        wait = f" for another {span(until - draft.now)}" if until is not None else ""
        return f"{who} {'stays' if one else 'stay'}{wait}, so that switching pays"
    if reason is Reason.WAITING_FOR_ROOM:
        return f"{who} {'is' if one else 'are'} still in transition"
    if reason is Reason.LOWER_PRIORITY:
        wait = f"; it makes way in {span(until - draft.now)} at the latest" if until is not None else ""
        return f"{who} {'is' if one else 'are'} as important or in use{wait}"
    return f"{who} {'is' if one else 'are'} pinned"


def _host(draft: Draft, candidate: Candidate, numbers: dict[str, float], away: list[Neighbour]) -> Binding:
    node = candidate.device.node
    room = draft.ledger.host_room_then(node, candidate.own)
    least = candidate.item.options[0].host_bytes
    numbers |= {"host_free_bytes": float(room), "host_needed_bytes": float(least)}
    return Binding(
        len(RELAXED),
        Reason.INSUFFICIENT_HOST_MEMORY,
        f"host memory of {node} is short: {size(max(0, room))} free, and offloading or putting others away "
        f"takes more (offloading this one down to its least takes {size(least)})",
        numbers,
        None,
    )
