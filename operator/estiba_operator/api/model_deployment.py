"""`ModelDeployment`: one model that users call by name. The same document is read from files and from Kubernetes."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints, field_validator, model_validator

from estiba_scheduler.domain import (
    Deployment,
    IdleMode,
    ModelSource,
    Objectives,
    OffloadMode,
    Policies,
    PreemptionMode,
)

from .metadata import ObjectMetadata
from .quantity import Bytes
from .resource import Part, rule

API_VERSION = "estiba.dev/v1alpha1"
KIND = "ModelDeployment"
LONGEST_NAME = 40
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SCHEMES = ("file", "package", "random")
LATER = ("hf", "s3", "pvc")

Text = Annotated[str, StringConstraints(max_length=253)]


class Metadata(ObjectMetadata):
    """As in every Kubernetes object, with a name that clients can call a model by."""

    name: str = Field(description="At most 40 lower-case letters, digits and '-'; clients call the model by it.")
    namespace: str = Field(default="default", description="Namespace of the deployment.")

    @field_validator("name", "namespace")
    @classmethod
    def _label(cls, text: str) -> str:
        if len(text) > LONGEST_NAME:
            raise ValueError(f"has {len(text)} characters; write at most {LONGEST_NAME}")
        if not LABEL.fullmatch(text):
            raise ValueError("write lower-case letters, digits and '-', with a letter or digit at both ends")
        return text


class Model(Part):
    """Which weights."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                rule(
                    f"self.uri.matches('^({'|'.join(SCHEMES)})://')",
                    "models of this kind are not known; write one of " + ", ".join(f"{s}://..." for s in SCHEMES),
                    fieldPath=".uri",
                )
            ]
        }
    )

    uri: Annotated[str, StringConstraints(min_length=1, max_length=2048)] = Field(
        description="file:///folder or file:///file.gguf, package://PACKAGE/FILE, random://ARCHITECTURE?hidden=...&layers=..."
    )
    revision: Text | None = Field(default=None, description="Of a model that has revisions.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="What the weights are served in; auto: as they are stored."
    )

    @field_validator("uri")
    @classmethod
    def _scheme(cls, uri: str) -> str:
        scheme, separator, _ = uri.partition("://")
        if separator and scheme in LATER:
            raise ValueError(f"{scheme}:// can't be served yet; download the model and write file:///path/to/it")
        if not separator or scheme not in SCHEMES:
            hint = f"file://{uri}" if uri.startswith("/") else "one of " + ", ".join(f"{s}://..." for s in SCHEMES)
            raise ValueError(f"models of this kind are not known; write {hint}")
        return uri


class Engine(Part):
    """What runs the model, and the largest requests that it serves."""

    type: Literal["torch", "vllm"] = Field(default="torch", description="torch: the one that Estiba carries.")
    context_tokens: int = Field(default=2048, ge=16, le=1_048_576, description="Longest sequence, prompt and answer.")
    max_batch: int = Field(default=8, ge=1, le=1024, description="Sequences that are decoded together.")


class Replicas(Part):
    """How many may serve at once."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [rule("self.min <= self.max", "min is above max; raise max or lower min")]
        }
    )

    min: int = Field(default=0, ge=0, le=64, description="Kept awake whatever the demand.")
    max: int = Field(default=1, ge=0, le=64, description="0: suspended, nothing is served.")

    @model_validator(mode="after")
    def _ordered(self) -> Replicas:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}; raise max or lower min")
        return self


class ObjectivesSpec(Part):
    """What the users of this model expect."""

    ttft_seconds: float = Field(default=10.0, gt=0, le=86400, description="Time to the first token.")
    tpot_seconds: float = Field(default=1.0, gt=0, le=3600, description="Time per token after the first.")
    percentile: float = Field(default=0.95, gt=0, le=1, description="Share of requests that should meet them.")


class Offload(Part):
    """Whether weights may leave the device while the model serves."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                rule(
                    "self.mode != 'Never' || !has(self.maxSlowdown) || self.maxSlowdown == 1.0",
                    "mode Never and maxSlowdown contradict each other; leave one out",
                )
            ]
        }
    )

    mode: OffloadMode = Field(default=OffloadMode.AUTO, description="Auto: by what was measured. Never: not at all.")
    max_slowdown: float | None = Field(
        default=None, ge=1, le=1000, description="Decode time may be so many times that of the fully resident model."
    )
    min_resident_fraction: float = Field(default=0.0, ge=0, le=1, description="Share of weights that stays at least.")

    @model_validator(mode="after")
    def _together(self) -> Offload:
        if self.mode is OffloadMode.NEVER and self.max_slowdown not in (None, 1.0):
            raise ValueError("mode Never and maxSlowdown contradict each other; leave one out")
        return self


class Preemption(Part):
    """Whether the model may be put away for others, and how far."""

    mode: PreemptionMode = Field(default=PreemptionMode.AUTO, description="Never: pinned, no other model displaces it.")
    lowest_rung: Literal["none", "sleep1", "sleep2", "cold"] = Field(
        default="cold",
        description="sleep1: weights to host memory. sleep2: weights dropped. cold: stopped. none: not at all.",
    )


class Idle(Part):
    """When the model is put away for want of requests."""

    mode: IdleMode = Field(default=IdleMode.AUTO, description="Auto: after a time derived from what coming back costs.")
    after_seconds: float | None = Field(default=None, ge=0, le=31_536_000, description="Instead of the derived time.")


class Placement(Part):
    """Where it may run."""

    devices: tuple[Text, ...] = Field(default=(), max_length=64, description="Products or uuids; empty: any.")


class Spec(Part):
    """What is wanted."""

    model: Model = Field(description="Which weights.")
    engine: Engine = Field(default=Engine(), description="What runs it.")
    priority: int = Field(default=0, ge=0, le=1_000_000, description="Higher yields later; 100 counts twice 0.")
    replicas: Replicas = Field(default=Replicas(), description="How many may serve at once.")
    kv_cache: Bytes | None = Field(
        default=None, description="Device memory for the KV cache, such as 64MiB; without it contextTokens x maxBatch."
    )
    objectives: ObjectivesSpec = Field(default=ObjectivesSpec(), description="What its users expect.")
    offload: Offload = Field(default=Offload(), description="Whether weights may leave the device while it serves.")
    preemption: Preemption = Field(default=Preemption(), description="Whether it may be put away for others.")
    idle: Idle = Field(default=Idle(), description="When it is put away for want of requests.")
    placement: Placement = Field(default=Placement(), description="Where it may run.")


class ModelDeployment(Part):
    """One model that users call by name."""

    api_version: Literal["estiba.dev/v1alpha1"] = Field(description="estiba.dev/v1alpha1")
    kind: Literal["ModelDeployment"] = Field(description="ModelDeployment")
    metadata: Metadata = Field(description="Name and namespace.")
    spec: Spec = Field(description="What is wanted.")
    status: dict[str, Any] | None = Field(default=None, exclude=True, description="Written by Estiba; not read.")

    @property
    def id(self) -> str:
        """namespace/name"""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def to_deployment(self, created_at: float = 0.0, generation: int = 1) -> Deployment:
        """What the planner knows of it. `created_at`: seconds since the epoch."""
        spec = self.spec
        return Deployment(
            name=self.metadata.name,
            namespace=self.metadata.namespace,
            model=ModelSource(
                uri=spec.model.uri,
                revision=spec.model.revision,
                dtype=spec.model.dtype,
                engine=spec.engine.type,
                context_tokens=spec.engine.context_tokens,
                max_batch=spec.engine.max_batch,
            ),
            priority=spec.priority,
            min_replicas=spec.replicas.min,
            max_replicas=spec.replicas.max,
            kv_bytes_wanted=spec.kv_cache,
            objectives=Objectives(
                ttft_s=spec.objectives.ttft_seconds,
                tpot_s=spec.objectives.tpot_seconds,
                percentile=spec.objectives.percentile,
            ),
            policies=Policies(
                offload=spec.offload.mode,
                max_slowdown=spec.offload.max_slowdown,
                min_resident_fraction=spec.offload.min_resident_fraction,
                preemption=spec.preemption.mode,
                lowest_rung=spec.preemption.lowest_rung,
                idle=spec.idle.mode,
                idle_s=spec.idle.after_seconds,
            ),
            devices=spec.placement.devices,
            generation=generation,
            created_at=created_at,
        )
