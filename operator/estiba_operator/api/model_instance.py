"""`ModelInstance`: one engine of a ModelDeployment. The operator writes `spec`, the node's agent writes `status`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from estiba_scheduler.domain import DesiredState, InstanceState

from .conditions import Condition
from .metadata import ObjectMetadata
from .model_deployment import Engine, Model
from .resource import Part

Text = Annotated[str, StringConstraints(max_length=253)]
Sentence = Annotated[str, StringConstraints(max_length=1024)]


class InstanceSpecPart(Part):
    """What is wanted of one engine."""

    deployment: Text = Field(description="Name of the ModelDeployment in the same namespace.")
    model: Model = Field(description="Which weights.")
    digest: Text | None = Field(default=None, description="Digest of the model's contents, once they were read.")
    engine: Engine = Field(default=Engine(), description="What runs it.")
    node: Text = Field(description="Node that it was planned for.")
    device: Text = Field(description="Uuid of the device on that node.")
    desired: DesiredState = Field(default=DesiredState.RUNNING, description="Running, asleep on a level, or gone.")
    resident_bytes: int = Field(ge=0, description="Weight bytes to keep on the device.")
    kv_bytes: int = Field(ge=0, description="KV cache budget on the device, in bytes.")
    budget_bytes: int = Field(ge=0, description="All device memory that it may hold, in bytes; enforced by its engine.")
    host_budget_bytes: int = Field(default=0, ge=0, description="Host memory that it may hold; 0: not limited here.")
    drain_deadline_seconds: float = Field(default=120.0, gt=0, description="Running requests may take so long to end.")
    start_deadline_seconds: float = Field(default=300.0, gt=0, description="It has to be ready so long after a start.")
    stop_grace_seconds: float = Field(default=10.0, gt=0, description="Between asking it to end and ending it.")
    reason: Text = Field(default="", description="Why this was decided: a constant of docs/reference/reasons.md.")
    message: Sentence = Field(default="", description="Why this was decided, in a sentence with the numbers.")


class InstanceStatusPart(Part):
    """What the node's agent sees of it. Facts, never what was asked for."""

    observed_generation: int = Field(default=0, ge=0, description="Newest spec that the agent has taken up.")
    settled_generation: int = Field(default=0, ge=0, description="Newest spec that is carried out, or has failed.")
    state: InstanceState = Field(default=InstanceState.PENDING, description="What it is now.")
    reason: Text = Field(default="", description="A constant of docs/reference/reasons.md.")
    message: Sentence = Field(default="", description="The same for people.")
    resident_bytes: int = Field(default=0, ge=0, description="Weight bytes on the device, measured.")
    resident_percent: int = Field(default=0, ge=0, le=100, description="The same as a share of all weights.")
    device_bytes: int = Field(default=0, ge=0, description="All device memory held, as the device says.")
    host_bytes: int = Field(default=0, ge=0, description="Sleeping and offloaded weights and saved KV cache.")
    kv_bytes: int = Field(default=0, ge=0, description="KV cache budget in force.")
    kv_used_bytes: int = Field(default=0, ge=0, description="KV cache in use.")
    running: int = Field(default=0, ge=0, description="Requests that run.")
    waiting: int = Field(default=0, ge=0, description="Requests that wait in the engine.")
    tpot_seconds: float | None = Field(default=None, ge=0, description="Decode step time seen lately.")
    wake_seconds: float | None = Field(default=None, ge=0, description="Predicted time to serve again from here.")
    first_ready_at: str | None = Field(default=None, max_length=40, description="When it first served; RFC 3339.")
    state_since: str | None = Field(default=None, max_length=40, description="When its state began; RFC 3339.")
    reported_at: str | None = Field(default=None, max_length=40, description="When the agent last wrote; RFC 3339.")
    url: Annotated[str, StringConstraints(max_length=2048)] | None = Field(
        default=None, description="OpenAI endpoint, while it answers."
    )
    offload_effective: bool | None = Field(
        default=None, description="False: the engine did not keep to the residency it was told."
    )
    failures: int = Field(default=0, ge=0, description="Failures in a row.")
    log_tail: tuple[Annotated[str, StringConstraints(max_length=500)], ...] = Field(
        default=(), max_length=20, description="The engine's last lines, on failure."
    )
    conditions: tuple[Condition, ...] = Field(default=(), max_length=16, description="Conditions, one per type.")


class ModelInstance(Part):
    """One engine of a ModelDeployment."""

    api_version: Literal["estiba.dev/v1alpha1"] = Field(description="estiba.dev/v1alpha1")
    kind: Literal["ModelInstance"] = Field(description="ModelInstance")
    metadata: ObjectMetadata = Field(description="Name and namespace.")
    spec: InstanceSpecPart = Field(description="What is wanted, by the operator.")
    status: InstanceStatusPart | None = Field(default=None, description="What is seen, by the node's agent.")
