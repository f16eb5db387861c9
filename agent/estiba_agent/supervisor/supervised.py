"""One instance as the machine knows it: what is wanted, what was seen, and what is on its way."""

from __future__ import annotations

from dataclasses import dataclass, field

from estiba_agent.engines.wire import EnginePhase, EngineState
from estiba_scheduler.domain import DesiredState, InstanceSpec, InstanceState, ProcessIdentity

from .events import CallKind
from .record import Failure, InstanceRecord, Residency

ASLEEP = {EnginePhase.ASLEEP1: 1, EnginePhase.ASLEEP2: 2}


@dataclass(frozen=True, slots=True)
class InFlight:
    """A control call that has no answer yet."""

    number: int
    kind: CallKind
    began_at: float
    phase: EnginePhase | None
    """the engine's, when the call was made"""
    residency: Residency | None = None


@dataclass(slots=True)
class Stopping:
    """The end of a process, step by step."""

    began_at: float
    asked: bool = False
    terminated_at: float | None = None
    killed_at: float | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """What the status says about the moment."""

    reason: str
    message: str


@dataclass(slots=True)
class Supervised:
    spec: InstanceSpec
    wanted_at: float
    """when this generation was taken up"""

    # the process
    spawning: bool = False
    identity: ProcessIdentity | None = None
    began_at: float = 0.0
    """when the process was started"""
    stopping: Stopping | None = None
    left_at: float | None = None
    """when the process ended whose memory is still awaited"""
    left_bytes: int = 0
    leaked_bytes: int = 0

    # the engine in it
    engine: EngineState | None = None
    seen_at: float = 0.0
    phase_told: EnginePhase | None = None
    serves: bool = False
    """its OpenAI endpoint answers"""
    unserved_since: float | None = None
    unseen: bool = False
    """re-adopted and not heard of yet: the recorded state stands"""
    call: InFlight | None = None
    answered_at: float = 0.0
    """states that were asked for before this are older than the last call's answer"""
    applied: Residency | None = None

    # how it went
    failure: Failure | None = None
    failures: int = 0
    refusals: int = 0
    refused: Note | None = None
    retry_at: float = 0.0
    drain_first: bool = False
    """running requests hold more KV than it may keep: they finish before the resize"""
    drain_given_up: bool = False
    gave_up_generation: int = 0
    """the resize of this generation was refused for good"""
    restart: str = ""
    """why the process is replaced by a new one; empty: it is not"""
    restarted_generation: int = 0
    shut_down: bool = False

    # what is told
    settled_generation: int = 0
    state: InstanceState = InstanceState.PENDING
    state_since: float = 0.0
    first_ready_at: float | None = None
    offload_effective: bool | None = None
    shortfall: str = ""
    remark: Note | None = None
    """something about this generation that its end should tell, such as a drain that ran out of time"""
    actuations_s: dict[str, float] = field(default_factory=dict)
    note: Note = Note("", "")

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def going(self) -> bool:
        return self.shut_down or self.spec.desired is DesiredState.EVICTED

    @property
    def phase(self) -> EnginePhase | None:
        return self.engine.phase if self.engine else None

    @property
    def wanted(self) -> Residency:
        return Residency.of(self.spec)

    @property
    def loading(self) -> bool:
        """It takes its device's turn to start."""
        alive = self.spawning or self.identity is not None
        return alive and not self.unseen and self.phase in (None, EnginePhase.LOADING)

    @property
    def held_bytes(self) -> int:
        return self.engine.device_bytes if self.engine else 0

    @property
    def claimed_bytes(self) -> int:
        """Device bytes that it holds or may take at any moment without asking."""
        if self.identity is None and not self.spawning:
            return self.left_bytes
        if self.phase in ASLEEP and self.call is None:
            return self.held_bytes
        budget = (self.applied or self.wanted).budget_bytes
        coming = self.call.residency.budget_bytes if self.call and self.call.residency else 0
        return max(budget, coming, self.held_bytes)

    def record(self) -> InstanceRecord:
        return InstanceRecord(
            spec=self.spec,
            spawning=self.spawning,
            identity=self.identity,
            applied=self.applied,
            state=self.state,
            state_since=self.state_since,
            first_ready_at=self.first_ready_at,
            settled_generation=self.settled_generation,
            failure=self.failure,
            failures=self.failures,
            actuations_s=dict(self.actuations_s),
        )

    def new_generation(self, spec: InstanceSpec, now: float) -> None:
        self.spec, self.wanted_at = spec, now
        self.refusals, self.refused, self.retry_at = 0, None, 0.0
        self.drain_given_up = self.drain_first = False
        self.remark = None

    def saw(self, state: EngineState, serves: bool, now: float) -> None:
        """The engine has told its state."""
        self.engine, self.seen_at, self.unseen = state, now, False
        self.serves = serves and state.phase is EnginePhase.READY
        unserved = state.phase is EnginePhase.READY and not serves
        self.unserved_since = (self.unserved_since or now) if unserved else None

    def process_gone(self, now: float) -> None:
        """The engine and everything asked of it are gone; its memory is awaited."""
        self.left_bytes = self.claimed_bytes
        self.left_at = now
        self.identity, self.spawning, self.unseen = None, False, False
        self.engine, self.call, self.stopping = None, None, None
        self.serves, self.unserved_since = False, None
        self.applied, self.offload_effective = None, None
        self.refusals, self.refused, self.retry_at = 0, None, 0.0
        self.drain_given_up = self.drain_first = False


def remembered(record: InstanceRecord, alive: bool, now: float) -> Supervised:
    """An instance as an earlier agent left it."""
    identity = record.identity if alive else None
    return Supervised(
        spec=record.spec,
        wanted_at=now,
        identity=identity,
        began_at=record.state_since if identity else 0.0,
        seen_at=now,
        unseen=alive,
        applied=record.applied if alive else None,
        failure=record.failure,
        failures=record.failures,
        settled_generation=record.settled_generation,
        state=record.state,
        state_since=record.state_since,
        first_ready_at=record.first_ready_at,
        actuations_s=dict(record.actuations_s),
    )
