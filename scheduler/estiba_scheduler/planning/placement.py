"""Bringing up what should be awake and is not: at once where there is room, else by making room for it."""

from __future__ import annotations

from ..domain import ActionKind, Reason
from .allotment import Allotment
from .binding import binding
from .candidates import Candidate, Search, search
from .cluster import Cluster
from .draft import START_MARGIN_S, Draft
from .failures import back_off_s, blocked_until
from .residency import Shortage, divide
from .scenario import Scenario, cheapest
from .scorers import best
from .standing import Standing
from .victims import neighbours
from .wording import names, share, short, size, span


def review_reservations(draft: Draft) -> None:
    """Carry reservations over, drop those that are moot, and end those that were kept in vain."""
    for (deployment, device), held in sorted(draft.reservations.items()):
        standing = draft.standings.get(deployment)
        if standing is None or deployment in draft.unplannable or device not in draft.cluster.devices:
            draft.release(deployment, device)
            continue
        growing = any(i.spec.device == device for i in standing.up)
        if not growing and len(standing.up) >= standing.wanted:
            draft.release(deployment, device)
        elif draft.now >= held.expires_at:
            draft.release(deployment, device)
            if not growing:
                # Room was to come free and did not: others get their turn before it tries again.
                known = draft.back_offs.get(deployment)
                failures = (known.failures if known else 0) + 1
                draft.fail(deployment, failures, draft.now + back_off_s(failures))
        else:
            draft.reserve(deployment, device, held.bytes, held.expires_at)


def place(draft: Draft) -> None:
    """Bring up every deployment that is short of replicas, in the order of who should go first."""
    short_of = [s for s in draft.plannable if len(s.up) < s.wanted]
    for standing in sorted(short_of, key=turn):
        if any(i.id in draft.acted for i in standing.instances) or standing.failed:
            continue  # something of it is being sorted out first
        if blocked_until(draft, standing) is None:
            _place_one(draft, standing)


def turn(standing: Standing) -> tuple[bool, int, bool, float, str]:
    """Who has waited too long, then who is more important, then whom somebody waits for, then who waits longest."""
    return (
        not standing.overdue,
        -standing.deployment.priority,
        not standing.urgent,
        standing.waiting_since,
        standing.id,
    )


def _place_one(draft: Draft, standing: Standing) -> None:
    found = search(draft, standing)
    if not found.candidates:
        _say_no_device(draft, standing, found)
        return
    at_once, later = [], []
    for candidate in found.candidates:
        given = _fit(draft, standing, candidate, at_once=True)
        if given is not None:
            at_once.append((candidate, given))
            continue
        given = _fit(draft, standing, candidate, at_once=False)
        if given is not None:
            later.append((candidate, given))
    if at_once:
        _bring_up(draft, standing, *best(standing, at_once))
    elif later:
        candidate, given = best(standing, later)
        _wait_for_room(draft, standing, candidate, given)
    else:
        _make_room(draft, standing, found)


def _fit(draft: Draft, standing: Standing, candidate: Candidate, at_once: bool) -> Allotment | None:
    """What it would be given there without anyone yielding; None where its least does not fit."""
    ledger, device = draft.ledger, candidate.device
    room = ledger.room_then(device, standing.id, candidate.own)
    host = ledger.host_room_then(device.node, candidate.own)
    if at_once:
        room = min(room, ledger.room_now(device, candidate.own))
        host = min(host, ledger.host_room_now(device.node, candidate.own))
    given = divide([candidate.item], room, host)
    return None if isinstance(given, Shortage) else given[candidate.item.key]


def _bring_up(draft: Draft, standing: Standing, candidate: Candidate, given: Allotment) -> None:
    deployment, device = standing.deployment, candidate.device
    reason = Reason.DEMAND if standing.busy else Reason.MIN_REPLICAS
    why = _why(standing)
    resident = share(given.resident_bytes / candidate.item.footprint.weight_bytes)
    with_what = (
        f"{size(given.budget_bytes)} on {device.uuid}, {resident} resident, predicted {span(given.tpot_s)} a token"
    )
    if candidate.instance is not None:
        text = f"waking: {why}; {with_what}, serves in about {span(candidate.serve_s)}"
        draft.wake(deployment, device, candidate.instance, given, reason, text)
    else:
        text = f"starting: {why}; {with_what}, serves in about {span(candidate.serve_s)}"
        draft.start(deployment, device, given, reason, text)
    draft.say(standing.id, Reason.STARTED, text, tpot_s=given.tpot_s, wake_s=candidate.serve_s)


def _why(standing: Standing) -> str:
    if standing.queued:
        return f"{standing.queued} {'request waits' if standing.queued == 1 else 'requests wait'}"
    if standing.busy:
        return "requests run"
    return f"{standing.deployment.min_replicas} wanted at all times"


def _wait_for_room(draft: Draft, standing: Standing, candidate: Candidate, given: Allotment) -> None:
    """Room is coming free by itself: keep it."""
    until = draft.now + _patience(draft.cluster, candidate)
    draft.reserve(standing.id, candidate.device.uuid, given.budget_bytes, until)
    draft.say(
        standing.id,
        Reason.WAITING_FOR_ROOM,
        f"{size(given.budget_bytes)} on {candidate.device.uuid} are being freed and are reserved for "
        f"{short(standing.id)}; serves about {span(candidate.serve_s)} after that",
        wake_s=candidate.serve_s,
        reserved_bytes=given.budget_bytes,
    )


def _make_room(draft: Draft, standing: Standing, found: Search) -> None:
    around = {c.device.uuid: neighbours(draft, standing, c) for c in found.candidates}
    scenarios = [s for c in found.candidates if (s := cheapest(draft, standing, c, around[c.device.uuid])) is not None]
    if scenarios:
        _carry_out(draft, standing, min(scenarios, key=lambda s: s.order))
        return
    bindings = [binding(draft, standing, c, around[c.device.uuid]) for c in found.candidates]
    for b in bindings:
        if b.again_at is not None:
            draft.due(b.again_at)
    nearest = min(bindings, key=lambda b: b.rank)
    draft.say(
        standing.id,
        nearest.reason,
        f"{short(standing.id)} {nearest.message}",
        wake_s=min(c.serve_s for c in found.candidates),
        **nearest.numbers,
    )


def _carry_out(draft: Draft, standing: Standing, scenario: Scenario) -> None:
    device, needed = scenario.candidate.device, scenario.given.budget_bytes
    for victim, way in scenario.put_away:
        spec = victim.instance.spec
        back = f"back in {span(way.wake_s)}" if way.level else f"starts again in {span(way.wake_s)}"
        text = (
            f"{way.words} for {short(standing.id)} (priority {standing.deployment.priority}, {_why(standing)}), which "
            f"needs {size(needed)} on {device.uuid}: {back}; frees {size(max(0, spec.budget_bytes - way.device_bytes))}"
            f"{_compared(scenario)}"
        )
        draft.put_away(victim.instance, way, Reason.PREEMPTED, text, beneficiary=standing.id, **_costs(scenario))
        if victim.standing is not None:
            draft.say(victim.name, Reason.PREEMPTED, text, wake_s=way.wake_s)
    for yielder, less in scenario.shrunk:
        before = yielder.instance.spec
        text = (
            f"shrinks from {size(before.budget_bytes)} to {size(less.budget_bytes)} for {short(standing.id)}: "
            f"predicted {span(less.tpot_s)} a token"
        )
        draft.resize(yielder.instance, less, Reason.SHRUNK, text, beneficiary=standing.id)
        draft.say(yielder.name, Reason.SHRUNK, text, tpot_s=less.tpot_s)
    until = draft.now + _patience(draft.cluster, scenario.candidate)
    draft.reserve(standing.id, device.uuid, needed, until)
    yielding = sorted({n.name for n, _ in (*scenario.put_away, *scenario.shrunk)})
    draft.say(
        standing.id,
        Reason.WAITING_FOR_ROOM,
        f"{names(yielding)} {'yields' if len(yielding) == 1 else 'yield'} {size(needed)} on {device.uuid}, reserved "
        f"for {short(standing.id)}; serves about {span(scenario.candidate.serve_s)} after that",
        wake_s=scenario.candidate.serve_s,
        reserved_bytes=needed,
    )


def _compared(scenario: Scenario) -> str:
    """What was weighed, in weighted seconds over the horizon."""
    if scenario.instead is None:
        return f"; costs {scenario.cost:.1f} weighted s, and nobody else could yield enough"
    others = sorted({n.name for n, _ in (*scenario.instead.put_away, *scenario.instead.shrunk)})
    return f"; costs {scenario.cost:.1f} weighted s, {names(others)} instead {scenario.instead.cost:.1f}"


def _costs(scenario: Scenario) -> dict[str, float]:
    instead = {"instead_cost": scenario.instead.cost} if scenario.instead else {}
    return {"cost": scenario.cost, **instead}


def _patience(cluster: Cluster, candidate: Candidate) -> float:
    """How long freed room is kept: the longest that anyone on the device may take to drain and stop, and a margin."""
    specs = [i.spec for i in cluster.on(candidate.device.uuid)]
    return max((s.drain_deadline_s + s.stop_grace_s for s in specs), default=0.0) + START_MARGIN_S


def _say_no_device(draft: Draft, standing: Standing, found: Search) -> None:
    if found.settling is not None:
        draft.say(
            standing.id,
            Reason.WAITING_FOR_ROOM,
            f"{short(standing.id)} is still going to sleep ({found.settling.state}); it wakes right after",
        )
        return
    if not draft.cluster.devices:
        draft.say(standing.id, Reason.NO_DEVICE, "no node has reported a device")
        return
    told = "; ".join(f"{device}: {why}" for device, why in found.objections.items())
    draft.say(standing.id, Reason.NO_DEVICE, f"no device for {short(standing.id)}: {told}")


def woken(draft: Draft) -> set[str]:
    """Deployments brought up in this pass."""
    return {a.deployment for a in draft.actions if a.kind in (ActionKind.START, ActionKind.WAKE)}
