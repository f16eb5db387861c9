"""Bytes that an instance needs, on the device and in host memory."""

from __future__ import annotations

from math import ceil

from ..domain import Deployment, Footprint, OffloadMode, Rung


def device_bytes(footprint: Footprint, resident_bytes: int, kv_bytes: int, factor: float = 1.0) -> int:
    """All device memory that an instance may hold: the budget it is given.

    Resident weights, the ring of stream buffers while anything is offloaded, KV cache, the activations of a step and
    the empty process; and never less than a start needs at its worst moment, taken to fall with what is offloaded.
    `factor` is raised after an out-of-memory.
    """
    offloaded = max(0, footprint.weight_bytes - resident_bytes)
    ring = footprint.stream_buffer_bytes if offloaded else 0
    steady = resident_bytes + ring + kv_bytes + footprint.activation_bytes + footprint.overhead_bytes
    return ceil(factor * max(steady, footprint.load_peak_bytes - offloaded))


def host_bytes(footprint: Footprint, resident_bytes: int) -> int:
    """Host memory that holds the offloaded weights, with the measured factor."""
    return ceil(max(0, footprint.weight_bytes - resident_bytes) * footprint.host_factor)


def asleep_device_bytes(footprint: Footprint, rung: Rung) -> int:
    """Device memory that stays held on this rung."""
    return {
        Rung.SLEEP1: footprint.sleep1_device_bytes,
        Rung.SLEEP2: footprint.sleep2_device_bytes,
        Rung.COLD: 0,
    }[rung]


def asleep_host_bytes(footprint: Footprint, rung: Rung) -> int:
    """Host memory held on this rung; at level 1 all weights, where it was not measured."""
    if rung is Rung.SLEEP1:
        return footprint.sleep1_host_bytes or ceil(footprint.weight_bytes * footprint.host_factor)
    return footprint.sleep2_host_bytes if rung is Rung.SLEEP2 else 0


def resident_levels(footprint: Footprint) -> tuple[int, ...]:
    """Every residency that can be asked for, ascending: the fixed weights, then one layer more each, then all."""
    levels = [footprint.fixed_bytes]
    for layer in footprint.layer_bytes:
        levels.append(min(levels[-1] + layer, footprint.weight_bytes))
    levels[-1] = footprint.weight_bytes
    return tuple(dict.fromkeys(levels))


def kv_wanted_bytes(deployment: Deployment, footprint: Footprint) -> int:
    """KV cache for a full batch of full contexts, unless the deployment says how much."""
    if deployment.kv_bytes_wanted is not None:
        return deployment.kv_bytes_wanted
    return deployment.model.context_tokens * deployment.model.max_batch * footprint.kv_bytes_per_token


def kv_minimum_bytes(deployment: Deployment, footprint: Footprint) -> int:
    """KV cache for one sequence of full context: with less, a request that was promised could not be served."""
    one = deployment.model.context_tokens * footprint.kv_bytes_per_token
    return min(one, kv_wanted_bytes(deployment, footprint))


def smallest_device_bytes(deployment: Deployment, footprint: Footprint, factor: float = 1.0) -> int:
    """The smallest budget that the deployment's policies allow, slowdown aside."""
    kv = kv_minimum_bytes(deployment, footprint)
    if deployment.policies.offload is OffloadMode.NEVER:
        return device_bytes(footprint, footprint.weight_bytes, kv, factor)
    floor = deployment.policies.min_resident_fraction * footprint.weight_bytes
    allowed = [level for level in resident_levels(footprint) if level >= floor]
    return min(device_bytes(footprint, level, kv, factor) for level in allowed)
