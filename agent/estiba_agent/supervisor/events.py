"""What the supervisor's machine is told. Frozen values, so that a log of them can be replayed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from estiba_agent.engines.wire import EngineState
from estiba_scheduler.domain import InstanceSpec, ProcessIdentity

from .record import InstanceRecord


class CallKind(StrEnum):
    """A control call to an engine."""

    DRAIN = "drain"
    RESUME = "resume"
    SLEEP1 = "sleep1"
    SLEEP2 = "sleep2"
    WAKE = "wake"
    RESIDENCY = "residency"
    STOP = "stop"


class Trouble(StrEnum):
    """How a control call failed."""

    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    WRONG_ENGINE = "wrong engine"


@dataclass(frozen=True, slots=True)
class SpecWanted:
    spec: InstanceSpec


@dataclass(frozen=True, slots=True)
class Remembered:
    """An instance from the records of an earlier agent; `alive` when its very process was found again."""

    record: InstanceRecord
    alive: bool
    log_tail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProcessStarted:
    instance: str
    identity: ProcessIdentity


@dataclass(frozen=True, slots=True)
class StartRefused:
    """No process could be made: the launch can't be described, or the system refused."""

    instance: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class EngineAppeared:
    """The engine has told who it is: now with boot id and model digest."""

    instance: str
    identity: ProcessIdentity


@dataclass(frozen=True, slots=True)
class EngineStateSeen:
    """`asked_at`: when the state was asked for. `serves`: its OpenAI endpoint answered a probe."""

    instance: str
    state: EngineState
    asked_at: float
    serves: bool = False


@dataclass(frozen=True, slots=True)
class WrongEngineSeen:
    """Somebody else answers on the engine's socket."""

    instance: str
    message: str


@dataclass(frozen=True, slots=True)
class EngineCallDone:
    instance: str
    call: int
    state: EngineState | None
    serves: bool = False


@dataclass(frozen=True, slots=True)
class EngineCallFailed:
    instance: str
    call: int
    trouble: Trouble
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ProcessExited:
    """`code`: as `subprocess` has it (negative: a signal); None where nobody could wait for it."""

    instance: str
    code: int | None
    log_tail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceSeen:
    """A device's own figures in bytes. `holders`: by instance, where the device can tell; else None."""

    uuid: str
    memory_bytes: int
    usable_bytes: int
    free_bytes: int | None = None
    foreign_bytes: int = 0
    holders: dict[str, int] | None = None


@dataclass(frozen=True, slots=True)
class DevicesSeen:
    devices: tuple[DeviceSeen, ...]
    asked_at: float


@dataclass(frozen=True, slots=True)
class GuestWanted:
    """Something outside supervision (a profiling job) wants to start an engine of `budget_bytes` on a device."""

    owner: str
    device: str
    budget_bytes: int


@dataclass(frozen=True, slots=True)
class GuestStarted:
    """It has loaded: others may start."""

    owner: str


@dataclass(frozen=True, slots=True)
class GuestGone:
    owner: str


@dataclass(frozen=True, slots=True)
class Forgotten:
    instance: str


@dataclass(frozen=True, slots=True)
class ShutdownWanted:
    """Every engine is drained and stopped, and none is started."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes."""


Event = (
    SpecWanted
    | Remembered
    | ProcessStarted
    | StartRefused
    | EngineAppeared
    | EngineStateSeen
    | WrongEngineSeen
    | EngineCallDone
    | EngineCallFailed
    | ProcessExited
    | DevicesSeen
    | GuestWanted
    | GuestStarted
    | GuestGone
    | Forgotten
    | ShutdownWanted
    | Tick
)
