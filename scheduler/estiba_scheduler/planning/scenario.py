"""Whole scenarios of making room, simulated before anything is proposed: who shrinks, who is put away, and how."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from ..domain import Rung
from ..prediction import quantum_s
from .allotment import Allotment, Item
from .candidates import Candidate
from .cluster import sleeping
from .draft import Draft
from .residency import Shortage, divide
from .rungs import PutAway, allowed
from .scorers import score
from .standing import HORIZON_S, Standing
from .victims import Neighbour, yield_cost

MOST_VICTIMS = 6
MOST_SLEEPERS = 3
"""Victims considered together: the cheapest ones, in every combination."""
RESIZE_S = 0.2
"""Weighted seconds that one shrink is taken to cost."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A set of concessions after which the candidate fits."""

    candidate: Candidate
    given: Allotment
    put_away: tuple[tuple[Neighbour, PutAway], ...]
    shrunk: tuple[tuple[Neighbour, Allotment], ...]
    cost: float
    instead: Scenario | None = None
    """The cheapest scenario with other victims, for the explanation; None where there is no other."""

    @property
    def order(self) -> tuple[float, int, str, tuple[str, ...]]:
        """Cheapest first; even ones by fewer concessions, then by name."""
        ids = tuple(n.id for n, _ in self.put_away)
        return (self.cost, len(self.put_away) + len(self.shrunk), self.candidate.device.uuid, ids)


def cheapest(draft: Draft, waiting: Standing, candidate: Candidate, around: list[Neighbour]) -> Scenario | None:
    """The cheapest scenario on this device, or None. Only what fits once everything is carried out is considered."""
    profile = draft.profile(waiting, candidate.device.uuid)
    rungs = allowed(waiting.deployment, profile) if profile else ()
    turn_s = quantum_s(profile, rungs[0]) if profile and rungs else HORIZON_S
    awake = [n for n in around if not sleeping(n.instance)]
    # Sleepers are disturbed, and victims put away deeper than they need be, only where nothing less will do.
    for yielding, deep in ((awake, False), (around, False), (around, True)):
        best: Scenario | None = None
        for cost, victims in _sets(yielding, turn_s, deep):
            if best is not None and cost >= best.cost:
                break
            found = _simulate(draft, waiting, candidate, around, victims, cost, deep)
            if found is not None and (best is None or found.order < best.order):
                best = found
        if best is not None:
            return replace(best, instead=_instead(draft, waiting, candidate, around, best, yielding, turn_s, deep))
    return None


def _instead(
    draft: Draft,
    waiting: Standing,
    candidate: Candidate,
    around: list[Neighbour],
    chosen: Scenario,
    yielding: list[Neighbour],
    turn_s: float,
    deep: bool,
) -> Scenario | None:
    """The cheapest way that spares whoever is put away in the chosen one."""
    spared = {n.id for n, _ in chosen.put_away}
    if not spared:
        return None
    others = [n for n in yielding if n.id not in spared]
    found = (_simulate(draft, waiting, candidate, around, v, cost, deep) for cost, v in _sets(others, turn_s, deep))
    return min((s for s in found if s is not None), key=lambda s: s.order, default=None)


def _sets(yielding: list[Neighbour], turn_s: float, deep: bool) -> Iterator[tuple[float, tuple[Neighbour, ...]]]:
    """Sets of victims with their cost, cheapest first, the empty one included."""
    priced = sorted(
        ((_price(n, n.ways[-1] if deep else n.ways[0], turn_s), n.id, n) for n in yielding if n.ways),
        key=lambda p: p[:2],
    )
    awake = [p for p in priced if not sleeping(p[2].instance)][:MOST_VICTIMS]
    asleep = [p for p in priced if sleeping(p[2].instance)][:MOST_SLEEPERS]
    pool = awake + asleep
    sets = [
        (sum(p[0] for p in group), tuple(p[1] for p in group), tuple(p[2] for p in group))
        for count in range(len(pool) + 1)
        for group in combinations(pool, count)
    ]
    return ((cost, victims) for cost, _, victims in sorted(sets, key=lambda s: (s[0], len(s[1]), s[1])))


def _price(neighbour: Neighbour, way: PutAway, turn_s: float) -> float:
    standing = neighbour.standing
    assert standing is not None, "an instance of no deployment is evicted, never a victim"
    return yield_cost(standing, way, turn_s, asleep=sleeping(neighbour.instance))


def _simulate(
    draft: Draft,
    waiting: Standing,
    candidate: Candidate,
    around: list[Neighbour],
    victims: tuple[Neighbour, ...],
    yielded: float,
    deep: bool,
) -> Scenario | None:
    ledger, device = draft.ledger, candidate.device
    stay = [n for n in around if n.item is not None and n.frees_here and n not in victims]
    gone = candidate.own | {v.id for v in victims}
    host_now = ledger.host_room_now(device.node)
    ways = _ways(draft, candidate, victims, deep, gone)
    if ways is None:
        return None
    for victim, way in ways:
        old = ledger.holding(victim.id)
        host_now -= max(0, way.host_bytes - (old.host_now if old else 0))
    if host_now < 0:
        return None  # on the way there, old and new copies together would not fit
    left_device = sum(w.device_bytes for v, w in ways if v.frees_here)
    left_host = sum(w.host_bytes for _, w in ways)
    beside = _fit(
        [candidate.item],
        ledger.room_then(device, waiting.id, gone) - left_device,
        ledger.host_room_then(device.node, gone) - left_host,
    )
    price = yielded
    if beside is not None:
        given = beside[candidate.item.key]
        cost = price + score(waiting, candidate, given) + HORIZON_S * sum(n.loss for n in stay)
        return Scenario(candidate, given, ways, (), cost)
    shared = _fit(
        [candidate.item, *(n.item for n in stay if n.item is not None)],
        ledger.room_then(device, waiting.id, gone | {n.id for n in stay}) - left_device,
        ledger.host_room_then(device.node, gone | {n.id for n in stay}) - left_host,
    )
    if shared is None:
        return None
    shrunk, loss = [], 0.0
    for n in stay:
        share, old = shared[n.id], ledger.holding(n.id)
        if old is not None and share.budget_bytes < old.device_then:
            shrunk.append((n, share))
            loss += share.loss
            host_now -= max(0, share.host_bytes - old.host_now)
        else:
            loss += n.loss
    if host_now < 0 or not (shrunk or ways):
        return None
    given = shared[candidate.item.key]
    cost = price + score(waiting, candidate, given) + HORIZON_S * loss + RESIZE_S * len(shrunk)
    return Scenario(candidate, given, ways, tuple(shrunk), cost)


def _fit(items: list[Item], device_room: int, host_room: int) -> dict[str, Allotment] | None:
    given = divide(items, device_room, host_room)
    return None if isinstance(given, Shortage) else given


def _ways(
    draft: Draft, candidate: Candidate, victims: tuple[Neighbour, ...], deep: bool, gone: frozenset[str] | set[str]
) -> tuple[tuple[Neighbour, PutAway], ...] | None:
    """How each victim yields: the cheapest rung to come back from that host memory has room for."""
    room = draft.ledger.host_room_then(candidate.device.node, frozenset(gone)) - candidate.item.options[0].host_bytes
    chosen: dict[str, PutAway] = {}
    # Who is likeliest to come back gets the host memory first.
    for victim in sorted(victims, key=lambda v: (-v.worth, v.id)):
        offered = victim.ways[-1:] if deep else victim.ways
        way = next((w for w in offered if w.rung is Rung.COLD or w.host_bytes <= room), None)
        if way is None:
            return None
        chosen[victim.id] = way
        room -= way.host_bytes
    return tuple((v, chosen[v.id]) for v in victims)


def room_if_all_yield(
    draft: Draft, waiting: Standing, candidate: Candidate, away: list[Neighbour], stay: list[Neighbour]
) -> int:
    """Bytes left for the candidate's least, were `away` gone and `stay` at their least (negative: missing)."""
    flexible = [n for n in stay if n.item is not None and n.frees_here]
    without = candidate.own | {n.id for n in away} | {n.id for n in flexible}
    least = sum(n.item.options[0].base_bytes for n in flexible if n.item is not None)
    room = draft.ledger.room_then(candidate.device, waiting.id, without)
    return room - least - candidate.item.options[0].base_bytes
