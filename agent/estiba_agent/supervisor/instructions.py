"""What the supervisor's machine wants done. The edge carries it out and answers with events."""

from __future__ import annotations

from dataclasses import dataclass

from estiba_agent.engines.wire import DrainRequest, ResidencyRequest, SleepRequest, WakeRequest
from estiba_scheduler.domain import InstanceSpec, InstanceStatus, ProcessIdentity

from .events import CallKind
from .record import InstanceRecord

Body = DrainRequest | SleepRequest | WakeRequest | ResidencyRequest | None


@dataclass(frozen=True, slots=True)
class Keep:
    """Write the record, before anything that follows is done."""

    record: InstanceRecord


@dataclass(frozen=True, slots=True)
class StartProcess:
    spec: InstanceSpec


@dataclass(frozen=True, slots=True)
class Call:
    """Ask the engine; answer with EngineCallDone or EngineCallFailed carrying the same number."""

    instance: str
    number: int
    kind: CallKind
    body: Body
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Terminate:
    """SIGTERM to the engine's process."""

    instance: str
    identity: ProcessIdentity


@dataclass(frozen=True, slots=True)
class KillGroup:
    """SIGKILL to the engine's whole process group."""

    instance: str
    identity: ProcessIdentity


@dataclass(frozen=True, slots=True)
class LookAtDevices:
    """Memory has just changed hands, or should have: read the devices now."""


@dataclass(frozen=True, slots=True)
class Report:
    status: InstanceStatus


@dataclass(frozen=True, slots=True)
class AdmitGuest:
    """The guest may start its engine."""

    owner: str


@dataclass(frozen=True, slots=True)
class RefuseGuest:
    owner: str
    message: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Remove what is kept of a forgotten instance."""

    instance: str


Instruction = (
    Keep | StartProcess | Call | Terminate | KillGroup | LookAtDevices | Report | AdmitGuest | RefuseGuest | Drop
)
