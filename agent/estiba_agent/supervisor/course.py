"""The next step from where an instance is to where it should be. Reads, decides, changes nothing.

`next_step` is asked again after every event, so each rule looks only at what is seen now:

    nothing runs     start when it is its turn and there is room; or it is gone, or failed
    it must end      drain, stop, SIGTERM, SIGKILL, each after its time
    it runs          what is seen and what is wanted name one call: drain, resume, sleep, wake or residency
"""

from __future__ import annotations

from dataclasses import dataclass

from estiba_agent.engines.wire import EnginePhase
from estiba_scheduler.domain import DesiredState, InstanceState, Reason
from estiba_scheduler.quantities import format_seconds

from .diagnosis import of_words
from .events import CallKind
from .room import Room
from .supervised import ASLEEP, Note, Supervised

STOP_PATIENCE_S = 3.0
"""An engine that was asked to stop gets this long (or its grace, if shorter) before SIGTERM."""
KILL_AGAIN_S = 10.0
PAST_ASKING = frozenset({Reason.ENGINE_UNRESPONSIVE, Reason.IDENTITY_MISMATCH})
"""Failures after which nothing is asked of whoever listens on the engine's socket."""

GIVEN_UP_IN_TIME = frozenset({Reason.INSUFFICIENT_MEMORY, Reason.NO_DEVICE, Reason.DEVICE_MEMORY_LEAKED})
"""Obstacles to a start that may never go away by themselves."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds that the supervisor waits for what has no deadline of its own."""

    unresponsive_s: float = 30.0
    silent_s: float = 10.0
    memory_back_s: float = 20.0


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do now; what the status says meanwhile (None: nothing special)."""

    note: Note | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Start the engine's process."""


@dataclass(frozen=True, slots=True)
class Ask:
    kind: CallKind


@dataclass(frozen=True, slots=True)
class BeginStop:
    """Nothing keeps it any more: end the process."""


@dataclass(frozen=True, slots=True)
class SendTerm:
    """SIGTERM."""


@dataclass(frozen=True, slots=True)
class SendKill:
    """SIGKILL to the group."""


@dataclass(frozen=True, slots=True)
class Fail:
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Restart:
    """A cheaper way failed: a new process in place of this one."""

    why: str


@dataclass(frozen=True, slots=True)
class MemoryBack:
    """The ended process holds nothing any more."""


@dataclass(frozen=True, slots=True)
class MemoryLeaked:
    bytes: int


@dataclass(frozen=True, slots=True)
class Settle:
    """What is wanted is so."""

    note: Note


Step = Wait | Start | Ask | BeginStop | SendTerm | SendKill | Fail | Restart | MemoryBack | MemoryLeaked | Settle


def next_step(i: Supervised, room: Room, now: float, patience: Patience) -> Step:
    if i.spawning:
        return Wait(Note(Reason.STARTED, "its process is being started"))
    if i.identity is None:
        return _without_process(i, room, now, patience)
    if i.going or i.failure or i.restart or i.stopping:
        return _ending(i, now, patience)
    return _running(i, room, now, patience)


# -- nothing runs ----------------------------------------------------------------------------------------------------


def _without_process(i: Supervised, room: Room, now: float, patience: Patience) -> Step:
    if i.left_at is not None:
        return _memory(i, i.left_at, room, now, patience)
    if i.going:
        if i.leaked_bytes:
            return Settle(
                Note(Reason.DEVICE_MEMORY_LEAKED, f"stopped, but on {room.uuid} {room.leak or 'all is back'}")
            )
        return Settle(i.remark or Note(Reason.STOPPED, "stopped; it holds nothing"))
    if i.failure and i.failure.generation >= i.spec.generation:
        return Settle(Note(i.failure.reason, i.failure.message))
    obstacle = room.obstacle_to_start(i.spec.budget_bytes, i.id)
    if obstacle is None:
        return Start()
    waited = now - i.wanted_at
    if obstacle.reason in GIVEN_UP_IN_TIME and waited > i.spec.start_deadline_s:
        return Fail(obstacle.reason, f"not started within {format_seconds(waited)}: {obstacle.message}")
    return Wait(obstacle)


def _memory(i: Supervised, left_at: float, room: Room, now: float, patience: Patience) -> Step:
    if room.seen is None or room.seen_at <= left_at:
        held = i.left_bytes
        if room.seen is None and now - left_at > patience.memory_back_s:
            return MemoryBack()  # the device itself is gone: nobody can tell, and nothing is placed there anyway
    else:
        held = room.still_held_by(i.id)
        if held == 0:
            return MemoryBack()
    if now - left_at > patience.memory_back_s:
        return MemoryLeaked(held)
    return Wait(Note(Reason.STOPPED, "its process has ended; waiting for its device memory to come back"))


# -- it must end -----------------------------------------------------------------------------------------------------


def _ending(i: Supervised, now: float, patience: Patience) -> Step:
    silent_s = now - i.seen_at
    if i.stopping is not None:
        return _stop_further(i, now)
    if i.failure or silent_s > patience.unresponsive_s:
        return BeginStop()
    if i.call is not None:
        return Wait(_end_note(i))
    if i.phase in (EnginePhase.READY, EnginePhase.DRAINING) and not i.drain_given_up:
        return Ask(CallKind.DRAIN)
    if i.unseen and i.phase is None:
        return Wait(_end_note(i))  # it may serve: it is asked first
    return BeginStop()


def _stop_further(i: Supervised, now: float) -> Step:
    stop = i.stopping
    assert stop is not None
    if stop.killed_at is not None:
        if now - stop.killed_at >= KILL_AGAIN_S:
            return SendKill()
        return Wait(Note(Reason.STOPPED, "killed; the system has not ended its process yet"))
    if i.failure and i.failure.reason in PAST_ASKING:
        return SendKill()
    if not stop.asked:
        return Ask(CallKind.STOP)
    if stop.terminated_at is None:
        if now - stop.began_at >= min(STOP_PATIENCE_S, i.spec.stop_grace_s):
            return SendTerm()
        return Wait(Note(Reason.STOPPED, "asked to stop"))
    if now - stop.terminated_at >= i.spec.stop_grace_s:
        return SendKill()
    return Wait(Note(Reason.STOPPED, f"told to end; killed after {format_seconds(i.spec.stop_grace_s)}"))


def _end_note(i: Supervised) -> Note:
    if i.restart:
        return Note(Reason.ESCALATED, i.restart)
    running = i.engine.running if i.engine else 0
    return Note(i.spec.reason or Reason.STOPPED, f"finishes {running} running requests before it stops")


# -- it runs ---------------------------------------------------------------------------------------------------------


def _running(i: Supervised, room: Room, now: float, patience: Patience) -> Step:
    silent_s = now - i.seen_at
    loading = i.phase in (None, EnginePhase.LOADING)
    if i.phase is EnginePhase.FAILED:
        assert i.engine is not None
        return Fail(*of_words(i.engine.error_reason, i.engine.error))
    if loading and not i.unseen:
        taken = now - i.began_at
        if taken > i.spec.start_deadline_s:
            return Fail(
                Reason.START_TIMEOUT,
                f"not ready after {format_seconds(taken)}; its deadline is {format_seconds(i.spec.start_deadline_s)}",
            )
        return Wait(Note(Reason.STARTED, "loading its model"))
    if silent_s > patience.unresponsive_s:
        return Fail(
            Reason.ENGINE_UNRESPONSIVE,
            f"its process {i.identity.pid if i.identity else ''} runs and has not answered for "
            f"{format_seconds(silent_s)}; it is killed",
        )
    if i.call is not None:
        return _meanwhile(i)
    if now < i.retry_at:
        return Wait(i.refused)
    if i.unseen and i.phase is None:
        return Wait()
    return (
        _towards_running(i, room, now, patience)
        if i.spec.desired is DesiredState.RUNNING
        else _towards_sleep(i, room, now)
    )


def _meanwhile(i: Supervised) -> Step:
    """A call is out. Only a drain is called off: everything else ends by itself and in bounded time."""
    assert i.call is not None
    if i.call.kind is CallKind.DRAIN and i.spec.desired is DesiredState.RUNNING and not i.drain_first:
        return Ask(CallKind.RESUME)
    notes = {
        CallKind.DRAIN: f"finishes {i.engine.running if i.engine else 0} running requests",
        CallKind.SLEEP1: "going to sleep, level 1",
        CallKind.SLEEP2: "going to sleep, level 2",
        CallKind.WAKE: "waking",
    }
    text = notes.get(i.call.kind)
    return Wait(Note(i.spec.reason or Reason.STARTED, text) if text else None)


def _towards_running(i: Supervised, room: Room, now: float, patience: Patience) -> Step:
    if i.phase in ASLEEP:
        return _wake(i, room, now)
    resize = i.applied != i.wanted and i.gave_up_generation != i.spec.generation
    grows = i.applied is None or i.spec.budget_bytes > i.applied.budget_bytes
    lacking = room.lacking(i.spec.budget_bytes, i.id, i.held_bytes) if resize and grows else None
    if i.phase is EnginePhase.DRAINED:
        return Ask(CallKind.RESIDENCY if resize and lacking is None else CallKind.RESUME)
    if i.phase is EnginePhase.DRAINING:
        return Ask(CallKind.DRAIN if resize and i.drain_first else CallKind.RESUME)
    if resize:
        if lacking is not None:
            if now - i.wanted_at > i.spec.start_deadline_s:
                return Settle(Note(lacking.reason, f"not resized: {lacking.message}"))
            return Wait(Note(lacking.reason, f"can't be resized yet: {lacking.message}"))
        return Ask(CallKind.DRAIN if i.drain_first else CallKind.RESIDENCY)
    if i.gave_up_generation == i.spec.generation and i.refused is not None:
        return Settle(i.refused)
    if not i.serves:
        return _unserved(i, now, patience)
    if i.offload_effective is False:
        return Settle(Note(Reason.OFFLOAD_INEFFECTIVE, i.shortfall))
    return Settle(Note(Reason.SERVING, "serves"))


def _unserved(i: Supervised, now: float, patience: Patience) -> Step:
    """It says that it is ready, and its endpoint does not answer."""
    since = i.unserved_since or now
    if i.first_ready_at is None and now - i.began_at > i.spec.start_deadline_s:
        return Fail(
            Reason.START_TIMEOUT,
            f"loaded, but its endpoint did not answer before its deadline of {format_seconds(i.spec.start_deadline_s)}",
        )
    if i.first_ready_at is not None and now - since > patience.unresponsive_s:
        return Fail(
            Reason.ENGINE_UNRESPONSIVE, f"its endpoint has not answered for {format_seconds(now - since)}; it is killed"
        )
    return Wait(Note(Reason.STARTED, "loaded; its endpoint does not answer yet"))


def _wake(i: Supervised, room: Room, now: float) -> Step:
    lacking = room.lacking(i.spec.budget_bytes, i.id, i.held_bytes)
    if lacking is None:
        return Ask(CallKind.WAKE)
    waited = now - i.wanted_at
    if waited > i.spec.start_deadline_s:
        return Restart(f"could not be woken within {format_seconds(waited)}: {lacking.message}")
    return Wait(Note(lacking.reason, f"can't be woken yet: {lacking.message}"))


def _towards_sleep(i: Supervised, room: Room, now: float) -> Step:
    level = 1 if i.spec.desired is DesiredState.ASLEEP1 else 2
    if i.phase in (EnginePhase.READY, EnginePhase.DRAINING):
        return Ask(CallKind.DRAIN)
    if i.phase is EnginePhase.DRAINED or ASLEEP[i.phase or EnginePhase.ASLEEP1] < level:
        return Ask(CallKind.SLEEP1 if level == 1 else CallKind.SLEEP2)
    if i.phase is not None and ASLEEP[i.phase] > level:
        return _wake(i, room, now)  # there is no way up but through the top
    return Settle(i.remark or Note(Reason.ASLEEP, f"asleep, level {level}"))


def state_of(i: Supervised) -> InstanceState:
    """The state that the facts amount to."""
    if i.failure and (i.failure.generation >= i.spec.generation or i.identity is not None) and not i.going:
        return InstanceState.FAILED
    if i.identity is None and not i.spawning:
        if i.going:
            return InstanceState.DRAINING if i.left_at is not None else InstanceState.EVICTED
        return InstanceState.PENDING
    if i.unseen:
        return i.state
    if i.stopping or i.going:
        return InstanceState.DRAINING
    if i.phase in (None, EnginePhase.LOADING) or (i.call and i.call.kind is CallKind.WAKE):
        return InstanceState.STARTING
    if i.call and i.call.kind in (CallKind.DRAIN, CallKind.RESUME):
        return InstanceState.DRAINING
    if i.phase is EnginePhase.READY:
        return InstanceState.READY if i.serves else InstanceState.STARTING
    if i.phase in ASLEEP:
        return InstanceState.ASLEEP1 if i.phase is EnginePhase.ASLEEP1 else InstanceState.ASLEEP2
    return InstanceState.FAILED if i.phase is EnginePhase.FAILED else InstanceState.DRAINING
