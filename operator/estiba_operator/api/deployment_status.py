"""What Estiba tells about a ModelDeployment. Written by the operator, never read by it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from .conditions import Condition
from .resource import Part

Text = Annotated[str, StringConstraints(max_length=253)]


class DeploymentStatus(Part):
    """How the model stands, and why. The strings are for `kubectl get`, the numbers for programs."""

    observed_generation: int = Field(default=0, ge=0, description="Of the spec that this was said about.")
    state: Text = Field(default="", description="Of its foremost instance; Absent: none.")
    reason: Text = Field(default="", description="A constant of docs/reference/reasons.md.")
    message: Annotated[str, StringConstraints(max_length=1024)] = Field(default="", description="The same for people.")
    node: Text = Field(default="", description="Node of its foremost instance.")
    device: Text = Field(default="", description="Device of its foremost instance.")
    resident: Text = Field(default="", description="Share of its weights on the device, such as 87%.")
    tpot: Text = Field(default="", description="Time per token, seen or predicted, such as 49 ms.")
    wake: Text = Field(default="", description="Predicted time to serve from where it is, such as 0.7 s.")
    tpot_seconds: float | None = Field(default=None, ge=0, description="Decode step time seen lately.")
    predicted_tpot_seconds: float | None = Field(default=None, ge=0, description="Decode step time as predicted.")
    wake_seconds: float | None = Field(default=None, ge=0, description="Predicted time to serve from where it is.")
    replicas: int = Field(default=0, ge=0, description="Instances that are there.")
    ready_replicas: int = Field(default=0, ge=0, description="Instances that serve.")
    selector: Text = Field(default="", description="Label selector of its pods, for the scale subresource.")
    url: Annotated[str, StringConstraints(max_length=2048)] = Field(
        default="", description="OpenAI base URL of the gateway in the cluster."
    )
    conditions: tuple[Condition, ...] = Field(
        default=(),
        max_length=16,
        description="Ready, Placed, Profiled, OffloadEffective, Preempted; one per type.",
    )
