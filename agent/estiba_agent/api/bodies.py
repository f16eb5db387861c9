"""What callers of the command socket send and get, beyond the domain's own values."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from estiba_agent.profiling.result import Validation
from estiba_scheduler.domain import InstanceSpec, InstanceStatus, ModelProfile, ModelSource, Node, Value
from estiba_scheduler.prediction import ModelFacts


class InstanceView(Value):
    """What is wanted of an instance, and what is seen of it."""

    spec: InstanceSpec
    status: InstanceStatus


class NodeView(Value):
    """All that one look at the machine tells: instances first, then devices, so that memory given back is seen free."""

    node: Node | None = Field(default=None, description="None before the devices were read for the first time")
    instances: tuple[InstanceView, ...] = ()


class FactsRequest(Value):
    model: ModelSource


class FactsAnswer(Value):
    """What a model's files tell, and what a profile of it is keyed by."""

    digest: str
    dtype: str
    engine: str
    engine_version: str
    facts: ModelFacts


class ProfileRequest(Value):
    deployment: str = Field(description="namespace/name, for people; the profile is keyed by the model")
    model: ModelSource
    device: str = Field(description="uuid")
    quick: bool = False


class JobStarted(Value):
    job: str


class JobState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class JobView(Value):
    """One profiling job. `done` of `total` steps; `note` says what is measured now."""

    job: str
    state: JobState
    deployment: str
    device: str
    done: int = 0
    total: int = 0
    note: str = ""
    profile: ModelProfile | None = None
    validation: tuple[Validation, ...] = Field(default=(), description="predictions at residencies not used in the fit")
    lacks: tuple[str, ...] = Field(default=(), description="what was not measured, and why")
    error: str | None = None


class CommandRefused(Exception):
    """A command that is not carried out: an HTTP status, a stable reason, and a sentence that says what to do."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
