"""A profile made from a model's size alone, before anything is measured: every figure labelled estimated."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from ..domain import (
    Device,
    DeviceKind,
    Footprint,
    HostLink,
    Knot,
    LoadPath,
    ModelProfile,
    ProfileKey,
    Provenance,
    ReloadRung,
    Rung,
    Sensitivity,
    Value,
)
from .streaming import step_s

DEFAULT_MEMORY_BYTES_PER_S = {DeviceKind.CPU: 8e9, DeviceKind.CUDA: 1e12}
DEFAULT_LINK_BYTES_PER_S = {DeviceKind.CPU: 4e9, DeviceKind.CUDA: 12e9}
DEFAULT_LOAD_BYTES_PER_S = 0.5e9
CUDA_CONTEXT_BYTES = 600 * 1024 * 1024
"""Device memory of an empty CUDA process, an allowance."""
ACTIVATION_SHARE = 0.03
"""Activation peak as a share of the weights, an allowance."""
ROOFLINE_SHARE = 0.6
"""Share of the memory bandwidth that decoding reaches in practice."""
PROCESS_START_S = {DeviceKind.CPU: 5.0, DeviceKind.CUDA: 15.0}
"""Interpreter, libraries and device context, before any weight is read."""
ENGINE_WAKE_S = 0.2
RING_LAYERS = 2
FRACTIONS = (1.0, 0.75, 0.5, 0.25, 0.0)


class ModelFacts(Value):
    """What a model's configuration and files tell without running it."""

    weight_bytes: int = Field(gt=0)
    fixed_bytes: int = Field(ge=0, description="embeddings, head, norms")
    layer_bytes: tuple[int, ...] = ()
    kv_bytes_per_token: int = Field(ge=0)
    host_factor: float = Field(default=1.0, gt=0)


def kv_bytes_per_token(layers: int, kv_heads: int, head_dim: int, bytes_per_value: int) -> int:
    """Keys and values of every layer: `2 * layers * kv_heads * head_dim * bytes`."""
    return 2 * layers * kv_heads * head_dim * bytes_per_value


def estimate_profile(
    key: ProfileKey,
    facts: ModelFacts,
    device: Device,
    link: HostLink | None = None,
    load_paths: Sequence[LoadPath] = (),
    now: float = 0.0,
) -> ModelProfile:
    """The prior for planning a model that was never measured on this kind of device.

    Decoding reads every weight once a step, so its time is bytes over achieved memory bandwidth. Loading reads the
    files over the slowest path named, because nothing says that they are cached.
    """
    bandwidth = (device.memory_bandwidth_bytes_per_s or DEFAULT_MEMORY_BYTES_PER_S[device.kind]) * ROOFLINE_SHARE
    link_rate = (link.bandwidth_bytes_per_s if link else None) or DEFAULT_LINK_BYTES_PER_S[device.kind]
    load_rate = min((p.bytes_per_s for p in load_paths if p.bytes_per_s > 0), default=DEFAULT_LOAD_BYTES_PER_S)
    return ModelProfile(
        key=key,
        footprint=_footprint(facts, device.kind),
        sensitivity=_sensitivity(facts, bandwidth, link_rate),
        reload=_reload(facts, device.kind, link_rate, load_rate),
        measured_at=0.0,
        measured_on=device.node,
    )


def _footprint(facts: ModelFacts, kind: DeviceKind) -> Footprint:
    ring = RING_LAYERS * max(facts.layer_bytes, default=0)
    overhead = CUDA_CONTEXT_BYTES if kind is DeviceKind.CUDA else 0
    return Footprint(
        weight_bytes=facts.weight_bytes,
        fixed_bytes=facts.fixed_bytes,
        layer_bytes=facts.layer_bytes,
        kv_bytes_per_token=facts.kv_bytes_per_token,
        activation_bytes=int(ACTIVATION_SHARE * facts.weight_bytes),
        overhead_bytes=overhead,
        stream_buffer_bytes=ring,
        host_factor=facts.host_factor,
        sleep1_device_bytes=overhead,
        sleep1_host_bytes=int(facts.weight_bytes * facts.host_factor),
        sleep2_device_bytes=overhead,
        provenance=Provenance.ESTIMATED,
    )


def _sensitivity(facts: ModelFacts, bandwidth: float, link_rate: float) -> Sensitivity:
    compute = facts.weight_bytes / bandwidth
    lowest = facts.fixed_bytes / facts.weight_bytes
    fractions = sorted({max(f, lowest) for f in FRACTIONS}, reverse=True) if facts.layer_bytes else [1.0]
    knots = []
    for fraction in fractions:
        step = step_s(compute, (1.0 - fraction) * facts.weight_bytes, link_rate)
        knots.append(
            Knot(
                resident_fraction=min(1.0, fraction),
                tpot_s=step,
                spread_s=step / 2,
                provenance=Provenance.ESTIMATED,
            )
        )
    return Sensitivity(knots=tuple(knots), link_bytes_per_s=link_rate)


def _reload(facts: ModelFacts, kind: DeviceKind, link_rate: float, load_rate: float) -> tuple[ReloadRung, ...]:
    weights = facts.weight_bytes

    def rung(which: Rung, fixed_s: float, rate: float, unload_s: float, path: str) -> ReloadRung:
        seconds = fixed_s + weights / rate
        return ReloadRung(
            rung=which,
            seconds_s=seconds,
            spread_s=seconds / 2,
            unload_s=unload_s,
            fixed_s=fixed_s,
            bytes_per_s=rate,
            path=path,
            provenance=Provenance.ESTIMATED,
        )

    return (
        rung(Rung.SLEEP1, ENGINE_WAKE_S, link_rate, weights / link_rate, "host"),
        rung(Rung.SLEEP2, ENGINE_WAKE_S, load_rate, 0.1, "disk"),
        rung(Rung.COLD, PROCESS_START_S[kind], load_rate, 0.5, "disk"),
    )
