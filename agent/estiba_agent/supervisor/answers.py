"""What an engine's answer to a control call means for its instance."""

from __future__ import annotations

from estiba_agent.engines.wire import EngineState
from estiba_scheduler.domain import Reason
from estiba_scheduler.quantities import format_seconds

from .course import Fail, Restart, Step
from .diagnosis import of_words
from .effect import shortfall
from .events import CallKind, EngineCallFailed, Trouble
from .supervised import ASLEEP, InFlight, Note, Supervised

TRIES = 5
MEMORY_TRIES = 2
BUSY_TRIES = 3
FIRST_RETRY_S = 0.5
LONGEST_RETRY_S = 10.0
VERIFY_S = 1.0
"""After a refusal for memory: the devices are read anew before it is tried once more."""

MEMORY = frozenset({Reason.OUT_OF_MEMORY, Reason.INSUFFICIENT_MEMORY, "KvCacheFull"})
BROKEN = frozenset({"Failed", "Internal", "CanaryMismatch"})


def call_done(i: Supervised, call: InFlight, state: EngineState | None, serves: bool, now: float) -> None:
    """Enter a good answer."""
    i.call, i.refused, i.refusals, i.retry_at = None, None, 0, 0.0
    if state is None:
        return
    i.saw(state, serves, now)
    i.answered_at = now
    path = _path(call)
    if path is not None:
        i.actuations_s[path] = state.last_transition_s.get(path, now - call.began_at)
    if call.residency is not None:
        i.applied = call.residency
        i.drain_first = False
        judge_offload(i)


def judge_offload(i: Supervised) -> None:
    """After a start, a wake or a resize: is what was asked for also what is there?"""
    if i.engine is None or i.applied is None or i.engine.footprint is None:
        return
    problem = shortfall(i.applied.resident_bytes, i.engine)
    i.offload_effective, i.shortfall = problem is None, problem or ""


def call_failed(i: Supervised, call: InFlight, event: EngineCallFailed, now: float) -> Step | None:
    """Enter a bad answer; the step that it forces at once, if any."""
    i.call, i.answered_at = None, now
    if event.trouble is Trouble.WRONG_ENGINE:
        return Fail(Reason.IDENTITY_MISMATCH, event.message)
    if event.reason == "DrainCancelled":
        return None
    if event.trouble is Trouble.REFUSED and event.reason in BROKEN:
        return Fail(*of_words(event.reason, event.message))
    i.refusals += 1
    if call.kind is CallKind.DRAIN and (i.going or i.restart):
        i.drain_given_up = True  # it goes anyway: its requests get what the stop's own grace allows
        return None
    memory = event.trouble is Trouble.REFUSED and event.reason in MEMORY
    i.refused = Note(
        event.reason if memory else Reason.ESCALATED, f"{call.kind} failed {i.refusals} times: {event.message}"
    )
    if memory:
        return _no_memory(i, call, event, now)
    if call.kind is CallKind.RESIDENCY and event.reason == "KvCacheInUse" and i.refusals >= BUSY_TRIES:
        i.drain_first, i.refusals = True, 0
        return None
    if i.refusals >= TRIES:
        return Restart(f"{call.kind} failed {i.refusals} times, now the engine is replaced: {event.message}")
    i.retry_at = now + min(LONGEST_RETRY_S, FIRST_RETRY_S * 2.0 ** (i.refusals - 1))
    return None


def _no_memory(i: Supervised, call: InFlight, event: EngineCallFailed, now: float) -> Step | None:
    """Verify, try once more, then take another way."""
    if i.refusals < MEMORY_TRIES:
        i.retry_at = now + VERIFY_S
        return None
    if call.kind is CallKind.WAKE:
        return Restart(f"the wake was refused {i.refusals} times, now the engine is replaced: {event.message}")
    i.gave_up_generation = i.spec.generation
    i.refused = Note(event.reason, f"not resized: {event.message}")
    return None


def drain_overran(call: InFlight, i: Supervised, now: float) -> str | None:
    """A sentence when a drain took all the time it had: requests were ended at its deadline."""
    if call.kind is CallKind.DRAIN and now - call.began_at >= i.spec.drain_deadline_s:
        return f"requests still ran at the drain deadline of {format_seconds(i.spec.drain_deadline_s)} and were ended"
    return None


def _path(call: InFlight) -> str | None:
    match call.kind:
        case CallKind.SLEEP1 | CallKind.SLEEP2:
            return call.kind.value
        case CallKind.RESIDENCY:
            return "resize"
        case CallKind.WAKE if call.phase in ASLEEP:
            return f"wake{ASLEEP[call.phase]}"
    return None
