"""`ModelProfile`: a readable, durable copy of what was measured of one model on one kind of device. Cluster-scoped."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from estiba_scheduler.domain import Provenance, Rung

from .metadata import ObjectMetadata
from .resource import Part

Text = Annotated[str, StringConstraints(max_length=253)]


class ProfileOf(Part):
    """What the profile holds for: exactly this combination."""

    digest: Text = Field(description="Digest of the model's contents.")
    dtype: Text = Field(description="What the weights are served in.")
    engine: Text = Field(description="Which engine.")
    engine_version: Text = Field(description="Its version.")
    product: Text = Field(description="Which kind of device.")
    tensor_parallel: int = Field(default=1, ge=1, le=64, description="Devices that share one instance.")
    offload_mechanism: Text = Field(default="stream", description="How weights that are not resident are reached.")


class CurvePoint(Part):
    """One point of the decode curve."""

    resident_percent: float = Field(ge=0, le=100, description="Share of the weights on the device, as achieved.")
    batch: int = Field(default=1, ge=1, description="Sequences decoded together.")
    context_tokens: int = Field(default=0, ge=0, description="Length of the sequences.")
    tpot_seconds: float = Field(gt=0, description="Decode step time, median.")
    spread_seconds: float = Field(default=0.0, ge=0, description="Half of the inter-quartile range.")
    samples: int = Field(default=1, ge=1, description="Steps that were measured.")
    provenance: Provenance = Field(description="Measured, fitted or estimated.")


class LadderRung(Part):
    """What coming back from one rung takes."""

    rung: Rung = Field(description="sleep1: weights in host memory. sleep2: weights dropped. cold: no process.")
    seconds: float = Field(ge=0, description="Time to serve again.")
    spread_seconds: float = Field(default=0.0, ge=0, description="Half of the inter-quartile range.")
    unload_seconds: float = Field(default=0.0, ge=0, description="Time to get there.")
    path: Text = Field(description="Where the weights come from: host, page_cache, disk or network.")
    provenance: Provenance = Field(description="Measured, fitted or estimated.")


class ProfileSpec(Part):
    """What was measured."""

    of: ProfileOf = Field(description="What it holds for.")
    weight_bytes: int = Field(gt=0, description="All weights, in the served dtype.")
    kv_bytes_per_token: int = Field(ge=0, description="KV cache per token.")
    curve: tuple[CurvePoint, ...] = Field(default=(), max_length=256, description="Decode time over residency.")
    ladder: tuple[LadderRung, ...] = Field(default=(), max_length=8, description="What coming back takes.")
    measured_at: str | None = Field(default=None, max_length=40, description="When; RFC 3339. None: never measured.")
    measured_on: Text = Field(default="", description="On which node.")
    document: dict[str, Any] = Field(
        default_factory=dict, description="The whole profile, as agents and scheduler exchange it."
    )


class ModelProfile(Part):
    """What was measured of one model on one kind of device."""

    api_version: Literal["estiba.dev/v1alpha1"] = Field(description="estiba.dev/v1alpha1")
    kind: Literal["ModelProfile"] = Field(description="ModelProfile")
    metadata: ObjectMetadata = Field(description="Name.")
    spec: ProfileSpec = Field(description="What was measured.")
