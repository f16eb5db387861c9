"""Routes that were tried in vain get one request now and then, until one is answered."""

from __future__ import annotations

import pytest

from estiba_gateway.doubts import FIRST_PAUSE_S, LONGEST_PAUSE_S, Doubts
from estiba_gateway.route_table import Route

ROUTE = Route("a-1", "http://127.0.0.1:9", 1.0, 1, "boot", 7)
ANEW = Route("a-1", "http://127.0.0.1:9", 2.0, 1, "boot", 7)


@pytest.fixture
def doubts() -> Doubts:
    """With a doubt since 100."""
    doubts = Doubts()
    doubts.refused(ROUTE, 100.0)
    return doubts


def test_a_route_that_refused_rests(doubts: Doubts) -> None:
    assert not doubts.may_take(ROUTE, 100.0 + FIRST_PAUSE_S - 0.01)
    assert doubts.may_take(ROUTE, 100.0 + FIRST_PAUSE_S)


def test_the_same_instance_reported_anew_is_not_in_doubt(doubts: Doubts) -> None:
    assert doubts.may_take(ANEW, 100.0)


def test_one_request_probes_and_the_others_wait_for_what_becomes_of_it(doubts: Doubts) -> None:
    doubts.sent(ROUTE)
    assert not doubts.may_take(ROUTE, 200.0)
    doubts.answered(ROUTE)
    assert doubts.may_take(ROUTE, 200.0)
    assert not doubts.in_doubt(ROUTE)


def test_a_probe_that_was_given_up_lets_another_probe(doubts: Doubts) -> None:
    doubts.sent(ROUTE)
    doubts.given_up(ROUTE)
    assert doubts.may_take(ROUTE, 200.0)


def test_pauses_grow_up_to_a_bound(doubts: Doubts) -> None:
    now, pauses = 100.0, []
    for _ in range(6):
        rest_from = now
        while not doubts.may_take(ROUTE, now):
            now += 0.25
        pauses.append(now - rest_from)
        doubts.sent(ROUTE)
        doubts.refused(ROUTE, now)
    assert pauses == [0.5, 1.0, 2.0, 4.0, LONGEST_PAUSE_S, LONGEST_PAUSE_S]


def test_many_that_come_back_from_one_refusal_count_once(doubts: Doubts) -> None:
    for _ in range(20):
        doubts.refused(ROUTE, 100.1)
    assert doubts.may_take(ROUTE, 100.0 + FIRST_PAUSE_S)


def test_doubts_about_routes_that_are_gone_are_forgotten(doubts: Doubts) -> None:
    doubts.keep_only([ANEW])
    assert not doubts.in_doubt(ROUTE)
