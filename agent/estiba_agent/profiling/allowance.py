"""Device memory that the engine under measurement may take: budget, KV cache, and the residency it starts at."""

from __future__ import annotations

from dataclasses import dataclass

from estiba_scheduler.domain import Device, Footprint, ModelSource
from estiba_scheduler.prediction import device_bytes
from estiba_scheduler.quantities import format_bytes

from .effort import Effort
from .residencies import levels_within

ACTIVATION_ALLOWANCE_BYTES = 64 * 1024 * 1024
"""Before the engine has counted its own."""
UNKNOWN_KV_BYTES = 64 * 1024 * 1024
"""KV cache of a model whose size per token is not known yet."""
LARGEST_KV_SHARE = 0.25


class TooLittleMemory(Exception):
    """The device has no room for the least of this model; the message has the numbers."""


@dataclass(frozen=True, slots=True)
class Cells:
    """The batches and contexts to measure, cut to what the deployment serves."""

    context_tokens: int
    long_context_tokens: int | None
    batch: int | None

    @classmethod
    def of(cls, effort: Effort, model: ModelSource) -> Cells:
        room = max(1, model.context_tokens - effort.warmup - effort.most_steps)
        short = min(effort.context_tokens, room)
        far = min(effort.long_context_tokens, room)
        batch = min(effort.batch, model.max_batch)
        return cls(short, far if far >= 2 * short else None, batch if batch > 1 else None)

    def kv_tokens(self, effort: Effort) -> int:
        beyond = effort.warmup + effort.most_steps
        return max((self.long_context_tokens or 0) + beyond, (self.batch or 1) * (self.context_tokens + beyond))


@dataclass(frozen=True, slots=True)
class Allowance:
    """Bytes. `resident_bytes` None: all weights."""

    resident_bytes: int | None
    kv_bytes: int
    budget_bytes: int


def available_bytes(device: Device) -> int:
    free = device.memory_bytes if device.free_bytes is None else device.free_bytes
    return min(device.usable_bytes, max(0, free - device.reserve_bytes))


def before_the_start(facts: Footprint | None, device: Device, kv_tokens: int) -> Allowance:
    """From what is known of the model (its estimated footprint, if any). Without it, the start offloads all it can."""
    available = available_bytes(device)
    if facts is None:
        return Allowance(0, min(UNKNOWN_KV_BYTES, available // 8), available)
    kv_bytes = _kv(facts, kv_tokens, available)
    whole = device_bytes(facts, facts.weight_bytes, kv_bytes) + facts.stream_buffer_bytes
    budget = min(available, whole + max(3 * facts.activation_bytes, ACTIVATION_ALLOWANCE_BYTES))
    levels = _levels(facts, budget, kv_bytes, device)
    return Allowance(None if levels[-1] == facts.weight_bytes else levels[-1], kv_bytes, budget)


def once_started(
    footprint: Footprint, budget_bytes: int, kv_tokens: int, device: Device
) -> tuple[int, tuple[int, ...]]:
    """KV bytes and the residencies that fit, by the engine's own count."""
    kv_bytes = _kv(footprint, kv_tokens, budget_bytes)
    return kv_bytes, _levels(footprint, budget_bytes, kv_bytes, device)


def _kv(footprint: Footprint, tokens: int, most_bytes: int) -> int:
    return min(tokens * footprint.kv_bytes_per_token, int(LARGEST_KV_SHARE * most_bytes))


def _levels(footprint: Footprint, budget_bytes: int, kv_bytes: int, device: Device) -> tuple[int, ...]:
    levels = levels_within(footprint, budget_bytes, kv_bytes)
    if not levels:
        least = device_bytes(footprint, footprint.fixed_bytes, kv_bytes)
        raise TooLittleMemory(
            f"with every layer offloaded the model takes {format_bytes(least)} on {device.uuid}, and "
            f"{format_bytes(budget_bytes)} may be used for measuring; free some memory there, or measure on another"
        )
    return levels
