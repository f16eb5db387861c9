"""The streaming model fitted to measured points: a flat part (compute) and a line (link), by least squares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """A decode step of `step_s` seconds that streamed `streamed` bytes; `weight` is the trust in it."""

    streamed: float
    step_s: float
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Hinge:
    """`step_s = max(flat_s, intercept_s + streamed * s_per_byte)`."""

    flat_s: float
    intercept_s: float
    s_per_byte: float

    def step_s(self, streamed: float) -> float:
        return max(self.flat_s, self.intercept_s + streamed * self.s_per_byte)

    @property
    def knee_bytes(self) -> float | None:
        """Streamed bytes at which the link becomes the limit; None where it never does."""
        if self.s_per_byte <= 0:
            return None
        return max(0.0, (self.flat_s - self.intercept_s) / self.s_per_byte)


def fit(points: Sequence[Point], link_bytes_per_s: float | None = None, overhead_s: float = 0.0) -> Hinge:
    """Fit a hinge to at least one point, in order of streamed bytes.

    Every way to cut the points into a flat head and a sloped tail is tried, and the smallest sum of squared
    relative errors wins. One point alone cannot give a slope: then the link's own rate is the prior.
    """
    best: tuple[float, Hinge] | None = None
    for cut in range(1, len(points) + 1):
        hinge = _through(points[:cut], points[cut:], link_bytes_per_s, overhead_s)
        error = sum(p.weight * (hinge.step_s(p.streamed) / p.step_s - 1.0) ** 2 for p in points)
        if best is None or error < best[0] - 1e-12:
            best = (error, hinge)
    assert best is not None, "a fit needs at least one point"
    return best[1]


def _through(head: Sequence[Point], tail: Sequence[Point], link: float | None, overhead_s: float) -> Hinge:
    flat = _mean(head, lambda p: p.step_s)
    prior = 1.0 / link if link else 0.0
    if not tail:
        # Nothing seen beyond the knee: the prior, held above what was seen flat.
        last = head[-1]
        return Hinge(flat, min(overhead_s, flat - last.streamed * prior), prior)
    slope = prior
    x, y = _mean(tail, lambda p: p.streamed), _mean(tail, lambda p: p.step_s)
    spread = sum(_trust(p) * (p.streamed - x) ** 2 for p in tail)
    if spread > 0:
        slope = sum(_trust(p) * (p.streamed - x) * (p.step_s - y) for p in tail) / spread
    elif not prior and x > head[-1].streamed:
        slope = (y - flat) / (x - head[-1].streamed)
    slope = max(0.0, slope)
    return Hinge(flat, y - slope * x, slope)


def _trust(point: Point) -> float:
    return point.weight / point.step_s**2  # relative errors count alike at both ends of the curve


def _mean(points: Sequence[Point], of: Callable[[Point], float]) -> float:
    total = sum(_trust(p) for p in points)
    return sum(_trust(p) * of(p) for p in points) / total
