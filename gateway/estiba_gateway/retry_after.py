"""When a client whose request could not be served should try again, from what is known."""

from __future__ import annotations

from collections.abc import Sequence

from estiba_scheduler.domain import InstanceState, InstanceStatus

SHORTEST_S = 1.0
LONGEST_S = 120.0
UNKNOWN_S = 10.0

ACTUATION_FROM = {
    InstanceState.PENDING: "start",
    InstanceState.STARTING: "start",
    InstanceState.ASLEEP1: "wake1",
    InstanceState.ASLEEP2: "wake2",
    InstanceState.EVICTED: "start",
    InstanceState.FAILED: "start",
    InstanceState.DRAINING: "sleep1",
}


def retry_after_s(statuses: Sequence[InstanceStatus], seen_hold_s: float | None, now: float) -> float:
    """Seconds, between 1 and 120.

    What the last such start or wake of an instance took, less what has passed of it; else how long requests for this
    model were held lately (`seen_hold_s`); else 10.
    """
    known = [left for status in statuses if (left := _left_s(status, now)) is not None]
    guess = min(known) if known else seen_hold_s if seen_hold_s is not None else UNKNOWN_S
    return min(LONGEST_S, max(SHORTEST_S, guess))


def _left_s(status: InstanceStatus, now: float) -> float | None:
    took = status.actuations_s.get(ACTUATION_FROM.get(status.state, ""))
    if took is None:
        return None
    begun = status.state in (InstanceState.STARTING, InstanceState.DRAINING)
    return took - max(0.0, now - status.state_since) if begun else took
