"""What makes one place better than another, in weighted seconds; lower is better."""

from __future__ import annotations

from collections.abc import Callable

from .allotment import Allotment
from .candidates import Candidate
from .standing import HORIZON_S, Standing

Scorer = Callable[[Standing, Candidate, Allotment], float]


def seconds_until_served(standing: Standing, candidate: Candidate, given: Allotment) -> float:
    """Whoever waits now waits that long."""
    return standing.weight * max(1, standing.queued) * candidate.serve_s


def seconds_lost_decoding(standing: Standing, candidate: Candidate, given: Allotment) -> float:
    """What the residency it would get there costs over the horizon."""
    return given.loss * HORIZON_S


SCORERS: tuple[Scorer, ...] = (seconds_until_served, seconds_lost_decoding)


def score(standing: Standing, candidate: Candidate, given: Allotment) -> float:
    return sum(scorer(standing, candidate, given) for scorer in SCORERS)


def best(standing: Standing, places: list[tuple[Candidate, Allotment]]) -> tuple[Candidate, Allotment]:
    """The best of at least one place; even ones by the faster decode there, then by device."""
    return min(places, key=lambda p: (score(standing, *p), p[1].tpot_s, p[0].device.uuid))
