"""What is kept on disk of one instance, so that a restarted agent goes on where the last one was."""

from __future__ import annotations

from pydantic import Field

from estiba_scheduler.domain import InstanceSpec, InstanceState, ProcessIdentity, Value


class Residency(Value):
    """Bytes that an engine was told to keep to."""

    resident_bytes: int
    kv_bytes: int
    budget_bytes: int

    @classmethod
    def of(cls, spec: InstanceSpec) -> Residency:
        return cls(resident_bytes=spec.resident_bytes, kv_bytes=spec.kv_bytes, budget_bytes=spec.budget_bytes)


class Failure(Value):
    """Why an instance failed, under which generation of its spec."""

    generation: int
    reason: str
    message: str
    log_tail: tuple[str, ...] = ()


class InstanceRecord(Value):
    spec: InstanceSpec
    spawning: bool = Field(default=False, description="a process was about to be started; its pid may be unknown")
    identity: ProcessIdentity | None = None
    applied: Residency | None = Field(default=None, description="what the engine was last told and did")
    state: InstanceState = InstanceState.PENDING
    state_since: float = 0.0
    first_ready_at: float | None = None
    settled_generation: int = 0
    failure: Failure | None = None
    failures: int = 0
    actuations_s: dict[str, float] = Field(default_factory=dict)
