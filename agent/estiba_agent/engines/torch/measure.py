"""Timing decode steps on synthetic sequences, for the profiler."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from ..wire import Measurement, MeasureRequest
from .seam import EngineRuntime

CHUNK_TOKENS = 128


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """Device memory while something runs, in bytes; `reset` starts a new peak at what is held now."""

    reset: Callable[[], None]
    held: Callable[[], int]
    peak: Callable[[], int]


def measure(
    runtime: EngineRuntime,
    request: MeasureRequest,
    vocabulary: int,
    memory: MemoryPeak,
    checkpoint: Callable[[], None] = lambda: None,
) -> Measurement:
    """Prefill `batch` sequences to `context_tokens`, then time `steps` decode steps after `warmup` of them.

    Token ids are random but the same every time. `checkpoint` is called between steps and may raise to give up.
    Raises KvCacheFull when the sequences don't fit in the KV budget.
    """
    rng = random.Random(0)
    length = request.context_tokens + request.warmup + request.steps
    sequences: list[object] = []
    memory.reset()
    try:
        for _ in range(request.batch):
            sequences.append(runtime.new_sequence(length))
        held = memory.held()
        prefill_s = 0.0
        for sequence in sequences:
            tokens = [rng.randrange(vocabulary) for _ in range(request.context_tokens)]
            for at in range(0, len(tokens), CHUNK_TOKENS):
                checkpoint()
                runtime.step([(sequence, tokens[at : at + CHUNK_TOKENS])])
                prefill_s += runtime.last_step.step_s
        step_s: list[float] = []
        compute_s: list[float] = []
        streamed = 0
        for index in range(request.warmup + request.steps):
            checkpoint()
            runtime.step([(sequence, [rng.randrange(vocabulary)]) for sequence in sequences])
            if index >= request.warmup:
                timing = runtime.last_step
                step_s.append(timing.step_s)
                compute_s.append(max(0.0, timing.step_s - timing.wait_s))
                streamed = max(streamed, timing.streamed_bytes)
        return Measurement(
            batch=request.batch,
            context_tokens=request.context_tokens,
            resident_fraction=runtime.resident_fraction,
            resident_bytes=runtime.resident_bytes,
            step_s=tuple(step_s),
            compute_s=tuple(compute_s),
            prefill_s=prefill_s,
            streamed_bytes_per_step=streamed,
            peak_device_bytes=memory.peak(),
            activation_bytes=max(0, memory.peak() - held),
        )
    finally:
        for sequence in sequences:
            runtime.free(sequence)
