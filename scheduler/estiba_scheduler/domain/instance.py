"""One running engine: what is wanted of it (spec, by the decider) and what is seen of it (status, by the agent)."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from .value import Value
from .workload import ModelSource


class InstanceState(StrEnum):
    PENDING = "Pending"  # wanted, nothing runs yet (a start may be waiting for its turn on the device)
    STARTING = "Starting"
    READY = "Ready"
    DRAINING = "Draining"
    ASLEEP1 = "Asleep1"  # weights in host memory
    ASLEEP2 = "Asleep2"  # weights dropped, process alive
    EVICTED = "Evicted"
    FAILED = "Failed"


ASLEEP = frozenset({InstanceState.ASLEEP1, InstanceState.ASLEEP2})


class DesiredState(StrEnum):
    RUNNING = "Running"
    ASLEEP1 = "Asleep1"
    ASLEEP2 = "Asleep2"
    EVICTED = "Evicted"


class InstanceSpec(Value):
    """Desired state. Every change raises `generation`; an agent ignores a spec older than the newest it has seen."""

    id: str = Field(description="unique, stable for the life of the instance")
    deployment: str = Field(description="namespace/name")
    model: ModelSource
    served_name: str = Field(description="the OpenAI model name it answers to")
    node: str
    device: str = Field(description="uuid")
    desired: DesiredState = DesiredState.RUNNING
    resident_bytes: int = Field(ge=0, description="weight bytes to keep on the device (not below fixed_bytes)")
    kv_bytes: int = Field(ge=0, description="KV cache budget on the device")
    budget_bytes: int = Field(ge=0, description="all device memory this instance may hold; enforced")
    host_budget_bytes: int = Field(default=0, ge=0, description="host memory it may hold; 0: not limited here")
    drain_deadline_s: float = Field(default=120.0, gt=0)
    start_deadline_s: float = Field(default=300.0, gt=0)
    stop_grace_s: float = Field(default=10.0, gt=0)
    generation: int = Field(ge=1)
    reason: str = Field(default="", description="Reason constant of the decision that set this generation")
    message: str = ""


class ProcessIdentity(Value):
    pid: int
    started_at: float = Field(description="seconds from the boot to the process's start, as the kernel tells")
    model_digest: str = ""
    boot_id: str = Field(default="", description="random per engine process")


class InstanceStatus(Value):
    """Observed facts; never what was asked for."""

    id: str
    deployment: str
    node: str
    device: str
    state: InstanceState
    reason: str = ""
    message: str = ""
    observed_generation: int = Field(default=0, description="newest spec generation that the agent has taken up")
    settled_generation: int = Field(default=0, description="newest generation that is fully carried out (or failed)")
    resident_bytes: int = Field(default=0, ge=0, description="weight bytes on the device, measured")
    resident_fraction: float = Field(default=0.0, ge=0, le=1)
    device_bytes: int = Field(default=0, ge=0, description="all device memory held, as the device says")
    host_bytes: int = Field(default=0, ge=0, description="sleeping and offloaded weights and saved KV in host memory")
    kv_bytes: int = Field(default=0, ge=0, description="KV budget in force")
    kv_used_bytes: int = Field(default=0, ge=0)
    in_flight: int = Field(default=0, ge=0)
    waiting: int = Field(default=0, ge=0)
    tpot_s: float | None = Field(default=None, description="decode step time seen lately")
    ttft_s: float | None = None
    requests_total: int = 0
    tokens_total: int = 0
    first_ready_at: float | None = Field(default=None, description="the idle clock starts here")
    last_request_at: float | None = None
    state_since: float = 0.0
    url: str | None = Field(default=None, description="OpenAI endpoint, while it answers")
    identity: ProcessIdentity | None = None
    offload_effective: bool | None = Field(default=None, description="False: asked and achieved bytes differ")
    failures: int = Field(default=0, ge=0, description="failures in a row")
    log_tail: tuple[str, ...] = Field(default=(), description="the engine's last lines, on failure")
    actuations_s: dict[str, float] = Field(
        default_factory=dict,
        description="last measured seconds of: start, wake1, wake2, sleep1, sleep2, resize",
    )
    reported_at: float = 0.0


class Instance(Value):
    """Spec and, once the agent has spoken, status."""

    spec: InstanceSpec
    status: InstanceStatus | None = None

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def state(self) -> InstanceState:
        return self.status.state if self.status else InstanceState.PENDING

    @property
    def settled(self) -> bool:
        """The agent has carried out the newest spec."""
        return self.status is not None and self.status.settled_generation >= self.spec.generation
