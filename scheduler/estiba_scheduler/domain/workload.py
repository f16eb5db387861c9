"""What users want: deployments with objectives and policies, and the demand seen for them."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from .value import Value


class ModelSource(Value):
    """Which weights to run and how."""

    uri: str = Field(description="file://, package:// (later hf://, s3://, pvc://)")
    revision: str | None = None
    digest: str | None = Field(default=None, description="content digest, once resolved")
    dtype: str = "auto"
    engine: str = "torch"
    context_tokens: int = Field(default=2048, ge=16, description="longest sequence served")
    max_batch: int = Field(default=8, ge=1)


class OffloadMode(StrEnum):
    AUTO = "Auto"
    NEVER = "Never"


class PreemptionMode(StrEnum):
    AUTO = "Auto"
    NEVER = "Never"  # pinned: never a victim


class IdleMode(StrEnum):
    AUTO = "Auto"  # after a time derived from what coming back costs
    NEVER = "Never"


class Objectives(Value):
    ttft_s: float = Field(default=10.0, gt=0)
    tpot_s: float = Field(default=1.0, gt=0)
    percentile: float = Field(default=0.95, gt=0, le=1)


class Policies(Value):
    offload: OffloadMode = OffloadMode.AUTO
    max_slowdown: float | None = Field(default=None, ge=1, description="decode time / fully resident decode time")
    min_resident_fraction: float = Field(default=0.0, ge=0, le=1)
    preemption: PreemptionMode = PreemptionMode.AUTO
    lowest_rung: str = Field(default="cold", description="how far it may be put away: none, sleep1, sleep2, cold")
    idle: IdleMode = IdleMode.AUTO
    idle_s: float | None = Field(default=None, ge=0, description="overrides the derived idle time")


class Deployment(Value):
    """One model that users call by name."""

    name: str
    namespace: str = "default"
    model: ModelSource
    priority: int = Field(default=0, ge=0, le=1_000_000)
    min_replicas: int = Field(default=0, ge=0)
    max_replicas: int = Field(default=1, ge=0)
    kv_bytes_wanted: int | None = Field(default=None, description="None: context_tokens x max_batch, shrunk to fit")
    objectives: Objectives = Objectives()
    policies: Policies = Policies()
    devices: tuple[str, ...] = Field(default=(), description="products or uuids it may use; empty: any")
    generation: int = 1
    created_at: float = 0.0
    problem: str = Field(default="", description="why it can't be planned (bad model path, ...); others go on")

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.name}"


class Demand(Value):
    """What the gateway has seen for one deployment."""

    deployment: str = Field(description="namespace/name")
    arrival_rate_per_s: float = Field(default=0.0, ge=0, description="exponentially weighted, about one minute")
    queued: int = Field(default=0, ge=0, description="requests held because no instance is ready")
    oldest_queued_at: float | None = Field(default=None, description="seconds since the epoch")
    in_flight: int = Field(default=0, ge=0)
    last_request_at: float | None = None
    requests_total: int = Field(default=0, ge=0)
    prompt_tokens_mean: float | None = None
    output_tokens_mean: float | None = None
    observed_at: float = 0.0
