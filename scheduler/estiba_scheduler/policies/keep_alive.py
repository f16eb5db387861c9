"""What today's single-node model servers have in common: load on request, keep for a fixed time, evict the oldest.

Ollama and llama-swap work so: a request for a model that is not loaded loads it; where it does not fit, the model
used least recently is unloaded first, after its running requests; an idle model is unloaded after a fixed time.
Nothing sleeps, nothing is resized, nothing is known of what coming back costs. Everything else (draining, budgets,
measured footprints, recovery from failures, pins) is the very machinery that Estiba's own planner uses, so that the
comparison is one of decisions.
"""

from __future__ import annotations

from collections.abc import Callable

from ..domain import Instance, Plan, PreemptionMode, Reason, Rung, Snapshot
from ..planning.allotment import Allotment
from ..planning.candidates import Candidate, search
from ..planning.cluster import serving
from ..planning.draft import START_MARGIN_S, Draft
from ..planning.failures import blocked_until, recover
from ..planning.housekeeping import tidy
from ..planning.pipeline import set_aside
from ..planning.placement import review_reservations
from ..planning.rungs import put_away
from ..planning.standing import Standing
from ..planning.verdicts import report
from ..planning.wording import short, size, span

KEEP_ALIVE_S = 300.0
"""Ollama's default for `keep_alive`."""

Fit = Callable[[Candidate, int, int], Allotment | None]
"""What a model would be given of (device room, host room); None where it does not fit."""


def plan_with(fit: Fit, snapshot: Snapshot, now: float) -> Plan:
    """One pass. `fit` decides how much of a model is loaded into the room there is."""
    draft = Draft(snapshot, now)
    set_aside(draft)
    review_reservations(draft)
    tidy(draft)
    recover(draft)
    _expire(draft)
    for standing in sorted(_absent(draft), key=lambda s: (s.waiting_since, s.id)):
        if blocked_until(draft, standing) is None:
            _load(draft, standing, fit)
    report(draft)
    return draft.finish()


def _absent(draft: Draft) -> list[Standing]:
    """Deployments that somebody asks for, or that are to be there always, with nothing loaded or leaving."""
    return [
        s
        for s in draft.plannable
        if not s.up
        and not s.failed
        and not any(i.id in draft.acted for i in s.instances)
        and s.deployment.max_replicas > 0
        and (s.busy or s.deployment.min_replicas > 0)
    ]


def _expire(draft: Draft) -> None:
    for standing in draft.plannable:
        if standing.busy or standing.last_busy_at is None or standing.deployment.min_replicas > 0:
            continue
        for instance in standing.up:
            if not serving(instance) or instance.id in draft.acted or not draft.cluster.commandable(instance):
                continue
            if draft.now - standing.last_busy_at < KEEP_ALIVE_S:
                draft.due(standing.last_busy_at + KEEP_ALIVE_S)
            else:
                draft.evict(instance, Reason.IDLE, f"idle for its fixed keep-alive of {span(KEEP_ALIVE_S)}")


def _load(draft: Draft, standing: Standing, fit: Fit) -> None:
    found = search(draft, standing)
    if not found.candidates:
        told = "; ".join(f"{device}: {why}" for device, why in found.objections.items())
        draft.say(standing.id, Reason.NO_DEVICE, f"no device for {short(standing.id)}: {told or 'none is reported'}")
        return
    for candidate in found.candidates:
        given = fit(candidate, *_room(draft, standing, candidate, now=True))
        if given is not None:
            text = f"loading: {size(given.budget_bytes)} fit on {candidate.device.uuid}"
            draft.start(standing.deployment, candidate.device, given, Reason.DEMAND, text)
            draft.say(standing.id, Reason.STARTED, text, wake_s=candidate.serve_s)
            return
    _make_room(draft, standing, found.candidates[0], fit)


def _room(draft: Draft, standing: Standing, candidate: Candidate, now: bool) -> tuple[int, int]:
    ledger, device = draft.ledger, candidate.device
    room, host = ledger.room_then(device, standing.id), ledger.host_room_then(device.node)
    if now:
        room, host = min(room, ledger.room_now(device)), min(host, ledger.host_room_now(device.node))
    return room, host


def _make_room(draft: Draft, standing: Standing, candidate: Candidate, fit: Fit) -> None:
    """Evict by age until it fits, idle models before busy ones; wait for what is leaving already."""
    device = candidate.device
    victims = [i for i in draft.cluster.on(device.uuid) if _may_go(draft, standing, i)]
    victims.sort(key=lambda i: _age_order(draft, i))
    given = fit(candidate, *_room(draft, standing, candidate, now=False))
    leaving: list[Instance] = []
    freed_device = freed_host = 0
    while given is None and victims:
        leaving.append(victims.pop(0))
        held = draft.ledger.holding(leaving[-1].id)
        freed_device += held.device_then if held else 0
        freed_host += held.host_then if held else 0
        room, host = _room(draft, standing, candidate, now=False)
        given = fit(candidate, room + freed_device, host + freed_host)
    if given is None:
        draft.say(
            standing.id, Reason.INSUFFICIENT_MEMORY, f"{short(standing.id)} does not fit on {device.uuid} by evicting"
        )
        return
    for victim in leaving:
        profile = draft.cluster.profile(victim.spec.deployment, device.uuid)
        back = f"; starts again in {span(put_away(profile, Rung.COLD).wake_s)}" if profile else ""
        text = f"evicted for {short(standing.id)}: used least recently{back}"
        draft.evict(victim, Reason.PREEMPTED, text, beneficiary=standing.id)
    draft.reserve(standing.id, device.uuid, given.budget_bytes, draft.now + _longest_drain(draft, device.uuid))
    draft.say(standing.id, Reason.WAITING_FOR_ROOM, f"{size(given.budget_bytes)} on {device.uuid} are being freed")


def _may_go(draft: Draft, waiting: Standing, instance: Instance) -> bool:
    """First come, first served: who has waited longer for a model that is loaded by now is not sent away again."""
    standing = draft.standings.get(instance.spec.deployment)
    return (
        standing is not None
        and standing.id != waiting.id
        and not (standing.queued and standing.waiting_since < waiting.waiting_since)
        and standing.deployment.policies.preemption is not PreemptionMode.NEVER
        and serving(instance)
        and instance.id not in draft.acted
        and draft.cluster.commandable(instance)
    )


def _age_order(draft: Draft, instance: Instance) -> tuple[bool, float, str]:
    standing = draft.standings[instance.spec.deployment]
    return (standing.in_flight > 0, standing.last_busy_at or 0.0, instance.id)


def _longest_drain(draft: Draft, device: str) -> float:
    specs = [i.spec for i in draft.cluster.on(device)]
    return max((s.drain_deadline_s + s.stop_grace_s for s in specs), default=0.0) + START_MARGIN_S
