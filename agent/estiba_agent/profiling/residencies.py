"""Which residencies to measure: an even grid first, then where the curve bends, then some to check the fit with."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from estiba_scheduler.domain import Footprint
from estiba_scheduler.prediction import resident_levels

STRAIGHT = 0.02
"""A bend that changes the step by less than this part of it, over the interval, is noise."""


def levels_within(footprint: Footprint, budget_bytes: int, kv_bytes: int) -> tuple[int, ...]:
    """Resident bytes that can be asked for and fit into the budget, ascending; empty where nothing fits."""
    base = kv_bytes + footprint.activation_bytes + footprint.overhead_bytes
    whole = footprint.weight_bytes
    return tuple(
        level
        for level in resident_levels(footprint)
        if level + base + (footprint.stream_buffer_bytes if level < whole else 0) <= budget_bytes
    )


def even_grid(levels: Sequence[int], count: int) -> tuple[int, ...]:
    """At most `count` of the levels, ascending: evenly spread, from the lowest to the highest."""
    if count >= len(levels):
        return tuple(levels)
    low, high = levels[0], levels[-1]
    wanted = [low + (high - low) * i / (count - 1) for i in range(count)]
    return tuple(sorted({_nearest(levels, w) for w in wanted}))


def where_it_bends(levels: Sequence[int], step_s: Mapping[int, float]) -> int | None:
    """The level to measure next, given steps measured at some: inside the interval that the bend costs most.

    An interval's doubt is its width times the change of slope at its ends. A curve with no bend gets its widest
    interval halved. None where no level is left between two that are measured.
    """
    known = sorted(step_s)
    spans = [(a, b) for a, b in pairwise(known) if _inside(levels, a, b)]
    if not spans:
        return None
    slopes = {(a, b): (step_s[b] - step_s[a]) / (b - a) for a, b in pairwise(known)}
    bends = {
        at: abs(slopes[at, up] - slopes[down, at]) for down, at, up in zip(known, known[1:], known[2:], strict=False)
    }

    def doubt(span: tuple[int, int]) -> tuple[float, int]:
        a, b = span
        error_s = (b - a) * max(bends.get(a, 0.0), bends.get(b, 0.0))
        return (error_s if error_s > STRAIGHT * min(step_s[a], step_s[b]) else 0.0), b - a

    a, b = max(spans, key=doubt)
    return _nearest(_inside(levels, a, b), (a + b) / 2)


def left_out(levels: Sequence[int], taken: Collection[int], count: int) -> tuple[int, ...]:
    """Up to `count` levels that are not taken, each in the middle of what was the widest gap. Ascending."""
    marks, chosen = sorted(taken), []
    for _ in range(count):
        spans = [(a, b) for a, b in pairwise(marks) if _inside(levels, a, b)]
        if not spans:
            break
        a, b = max(spans, key=lambda s: (s[1] - s[0], s))
        middle = _nearest(_inside(levels, a, b), (a + b) / 2)
        chosen.append(middle)
        marks = sorted([*marks, middle])
    return tuple(sorted(chosen))


def _inside(levels: Sequence[int], a: int, b: int) -> list[int]:
    return [level for level in levels if a < level < b]


def _nearest(levels: Sequence[int], wanted: float) -> int:
    at = bisect_left(levels, wanted)
    return min(levels[max(0, at - 1) : at + 1], key=lambda level: (abs(level - wanted), level))
