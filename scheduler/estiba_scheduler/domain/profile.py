"""What was measured about a model on a kind of device: footprint, offloading sensitivity, reload ladder."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from .value import Value


class Provenance(StrEnum):
    MEASURED = "measured"
    FITTED = "fitted"
    ESTIMATED = "estimated"


class ProfileKey(Value):
    """A profile holds for exactly this combination."""

    model_digest: str
    dtype: str
    engine: str
    engine_version: str
    product: str
    tensor_parallel: int = 1
    offload_mechanism: str = "stream"

    def __str__(self) -> str:
        parts = (self.model_digest, self.dtype, self.engine, self.engine_version, self.product)
        return "|".join((*parts, str(self.tensor_parallel), self.offload_mechanism))


class Footprint(Value):
    """Bytes that an instance needs, and where."""

    weight_bytes: int = Field(gt=0, description="all weights, in the served dtype")
    fixed_bytes: int = Field(ge=0, description="weights that never leave the device (embeddings, head, norms)")
    layer_bytes: tuple[int, ...] = Field(description="weights of each offloadable block, in order")
    kv_bytes_per_token: int = Field(ge=0)
    activation_bytes: int = Field(default=0, ge=0, description="peak of one step, beyond weights and KV")
    overhead_bytes: int = Field(default=0, ge=0, description="device memory of an empty process")
    stream_buffer_bytes: int = Field(default=0, ge=0, description="ring of buffers, held while any layer is offloaded")
    load_peak_bytes: int = Field(default=0, ge=0, description="device memory at the worst moment of a start")
    load_peak_host_bytes: int = Field(default=0, ge=0)
    host_factor: float = Field(default=1.0, gt=0, description="host bytes held per offloaded byte, measured")
    process_host_bytes: int = Field(default=0, ge=0, description="host memory of the process without weights")
    sleep1_device_bytes: int = Field(default=0, ge=0)
    sleep1_host_bytes: int = Field(default=0, ge=0)
    sleep2_device_bytes: int = Field(default=0, ge=0)
    sleep2_host_bytes: int = Field(default=0, ge=0)
    provenance: Provenance = Provenance.ESTIMATED

    @property
    def offloadable_bytes(self) -> int:
        return sum(self.layer_bytes)

    @property
    def minimum_resident_bytes(self) -> int:
        """Weights on the device when every block is offloaded (without the stream buffers)."""
        return self.fixed_bytes


class Knot(Value):
    """One measured point of the sensitivity surface."""

    resident_fraction: float = Field(ge=0, le=1, description="resident weight bytes / all weight bytes, as achieved")
    batch: int = Field(default=1, ge=1)
    context_tokens: int = Field(default=0, ge=0)
    tpot_s: float = Field(gt=0, description="decode step time, median")
    spread_s: float = Field(default=0.0, ge=0, description="half of the inter-quartile range")
    samples: int = Field(default=1, ge=1)
    provenance: Provenance = Provenance.MEASURED


class RejectedKnot(Value):
    """A point that was measured but not believed, and why (for example: the flag changed no memory)."""

    resident_fraction: float
    achieved_fraction: float
    reason: str


class Sensitivity(Value):
    """How a decode step slows as weights leave the device."""

    knots: tuple[Knot, ...] = ()
    rejected: tuple[RejectedKnot, ...] = ()
    link_bytes_per_s: float | None = Field(default=None, description="the host link's rate when measured")
    prefill_s_per_token: float | None = Field(default=None, description="fully resident, measured")
    stream_overhead_s: float = Field(default=0.0, ge=0, description="cost of streaming that bandwidth does not explain")


class Rung(StrEnum):
    """How far an instance was put away; ordered from cheapest to dearest to come back from."""

    SLEEP1 = "sleep1"
    SLEEP2 = "sleep2"
    COLD = "cold"


class ReloadRung(Value):
    """Seconds to come back from one rung: fixed_s + bytes / bytes_per_s, measured as seconds_s."""

    rung: Rung
    seconds_s: float = Field(ge=0, description="median of what was measured")
    spread_s: float = Field(default=0.0, ge=0)
    unload_s: float = Field(default=0.0, ge=0)
    fixed_s: float = Field(default=0.0, ge=0)
    bytes_per_s: float | None = None
    path: str = Field(default="host", description="host, page_cache, disk or network")
    samples: int = Field(default=1, ge=0)
    provenance: Provenance = Provenance.MEASURED


class ModelProfile(Value):
    key: ProfileKey
    footprint: Footprint
    sensitivity: Sensitivity = Sensitivity()
    reload: tuple[ReloadRung, ...] = ()
    measured_at: float = Field(default=0.0, description="seconds since the epoch; 0: never measured")
    measured_on: str = Field(default="", description="node")
    profiling_s: float = Field(default=0.0, description="how long measuring took")
    predicted_to_actual: dict[str, float] = Field(
        default_factory=dict, description="ratio of the estimate made before measuring to the measured figure"
    )

    def rung(self, rung: Rung) -> ReloadRung | None:
        return next((r for r in self.reload if r.rung is rung), None)
