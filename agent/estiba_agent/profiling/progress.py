"""How far the measuring is, told as it goes; and whether it is still wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .result import ProfilingCancelled

OnProgress = Callable[[int, int, str], None]


class Progress:
    """Steps done of a total that is raised as more is planned."""

    def __init__(self, on_progress: OnProgress, cancelled: Callable[[], bool]) -> None:
        self._on_progress = on_progress
        self._cancelled = cancelled
        self._done = 0
        self._total = 0

    def expect(self, steps: int) -> None:
        self._total += steps

    @contextmanager
    def step(self, note: str) -> Iterator[None]:
        """One step, done also when it fails. Raises ProfilingCancelled before it begins."""
        self.check()
        self._total = max(self._total, self._done + 1)
        self._on_progress(self._done, self._total, note)
        try:
            yield
        finally:
            self._done += 1

    def skip(self, steps: int = 1) -> None:
        self._done += steps

    def finish(self, note: str) -> None:
        self._on_progress(self._total, self._total, note)

    def check(self) -> None:
        if self._cancelled():
            raise ProfilingCancelled("cancelled; what was measured is kept")
