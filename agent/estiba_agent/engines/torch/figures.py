"""Rolling figures of an engine that serves: what its state reports as measured."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import fmean, median

WINDOW = 32
"""Latest decode-only steps, and latest first tokens, that the medians are taken over."""


@dataclass(slots=True)
class ServingFigures:
    """Counted and timed by the batcher. Times are in seconds, `last_request_at` since the epoch."""

    requests_total: int = 0
    tokens_total: int = 0
    last_request_at: float | None = None
    _steps: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _first_tokens: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def decode_step(self, step_s: float, batch: int) -> None:
        """One step in which every sequence got one token; steps with prefill in them don't count."""
        self._steps.append((step_s, batch))

    def first_token(self, ttft_s: float) -> None:
        self._first_tokens.append(ttft_s)

    @property
    def tpot_s(self) -> float | None:
        return median(step for step, _ in self._steps) if self._steps else None

    @property
    def tpot_batch(self) -> float | None:
        return fmean(batch for _, batch in self._steps) if self._steps else None

    @property
    def ttft_s(self) -> float | None:
        return median(self._first_tokens) if self._first_tokens else None

    def forget_times(self) -> None:
        """Times measured under another residency say nothing about this one."""
        self._steps.clear()
        self._first_tokens.clear()
