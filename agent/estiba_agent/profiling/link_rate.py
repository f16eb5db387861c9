"""What the host link does under streaming, read from decode steps that had to wait for weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median

from estiba_scheduler.domain import HostLink

from ..engines.wire import Measurement

WAITING = 0.08
"""Part of a step spent waiting for weights from which on the link is taken to be what it waits for."""


@dataclass(frozen=True, slots=True)
class Streaming:
    """`bytes_per_s` as reached by streaming; `overhead_s` a step, which that rate does not explain."""

    bytes_per_s: float
    overhead_s: float
    samples: int


def streaming(measurements: Sequence[Measurement], nominal_bytes_per_s: float | None = None) -> Streaming | None:
    """None where no step was limited by the link.

    The rate is the slope of step time over streamed bytes, so that what each step costs beyond the bytes is no part of
    it. With one residency alone it is bytes over time. The overhead is what is left at the nominal rate, if known.
    """
    points = sorted((m.streamed_bytes_per_step, median(m.step_s)) for m in measurements if _waits(m))
    if not points:
        return None
    samples = sum(len(m.step_s) for m in measurements if _waits(m))
    x, y = mean(p[0] for p in points), mean(p[1] for p in points)
    spread = sum((p[0] - x) ** 2 for p in points)
    slope = sum((p[0] - x) * (p[1] - y) for p in points) / spread if spread else 0.0
    if slope <= 0 or slope * x > y:  # noise, or one point: the line then goes through nothing streamed in no time
        slope = y / x
    rate = nominal_bytes_per_s or 1.0 / slope
    overhead = median(max(0.0, step - streamed / rate) for streamed, step in points)
    return Streaming(1.0 / slope, overhead, samples)


def planning_rate(link: HostLink | None, reached: Streaming | None) -> float | None:
    """The rate that the curve was measured at, in the terms in which the planner divides the link.

    Where the node names a rate, the planner's shares are shares of that one: alone on the link the curve then holds as
    it was measured. Without one, what streaming reached.
    """
    nominal = link.bandwidth_bytes_per_s if link else None
    return nominal or (reached.bytes_per_s if reached else None)


def _waits(m: Measurement) -> bool:
    if m.streamed_bytes_per_step <= 0 or not m.compute_s:
        return False
    step = median(m.step_s)
    return step - median(m.compute_s) > WAITING * step
