"""When to try again, from what is known."""

from __future__ import annotations

from typing import Any

import pytest

from estiba_gateway.retry_after import LONGEST_S, UNKNOWN_S, retry_after_s
from estiba_scheduler.domain import InstanceState, InstanceStatus
from tests.builders import an_instance

NOW = 1000.0


def a_status(state: InstanceState, since: float = NOW, **actuations: float) -> InstanceStatus:
    status = an_instance("a", state).status
    assert status is not None
    changes: dict[str, Any] = {"state_since": since, "actuations_s": actuations}
    return status.model_copy(update=changes)


@pytest.mark.parametrize(
    ("status", "seconds"),
    [
        (a_status(InstanceState.ASLEEP1, wake1=3, wake2=9, start=30), 3),
        (a_status(InstanceState.ASLEEP2, wake1=3, wake2=9, start=30), 9),
        (a_status(InstanceState.FAILED, start=30), 30),
        (a_status(InstanceState.STARTING, since=NOW - 20, start=30), 10),
        (a_status(InstanceState.STARTING, since=NOW - 99, start=30), 1),
        (a_status(InstanceState.ASLEEP1, since=NOW - 99, wake1=3), 3),
        (a_status(InstanceState.ASLEEP1, wake1=500), LONGEST_S),
    ],
)
def test_it_is_what_such_an_actuation_took_last_less_what_has_passed(status: InstanceStatus, seconds: float) -> None:
    assert retry_after_s([status], seen_hold_s=77.0, now=NOW) == seconds


def test_the_nearest_of_several_instances_counts() -> None:
    statuses = [a_status(InstanceState.FAILED, start=30), a_status(InstanceState.ASLEEP1, wake1=2)]
    assert retry_after_s(statuses, None, NOW) == 2


def test_without_a_figure_it_is_how_long_others_were_held() -> None:
    assert retry_after_s([a_status(InstanceState.STARTING)], seen_hold_s=12.0, now=NOW) == 12
    assert retry_after_s([], None, NOW) == UNKNOWN_S
