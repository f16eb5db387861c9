"""A store that lost everything is not one whose models were all deleted."""

from __future__ import annotations

from estiba_gateway.loss_guard import BELIEVED_AFTER_S, LossGuard
from tests.builders import a_deployment

A, B = a_deployment("a"), a_deployment("b")


def test_a_store_that_is_suddenly_empty_is_not_believed_at_once() -> None:
    guard = LossGuard()
    guard.believe([A, B], 0.0)
    assert guard.believe([], 1.0) == [A, B]
    assert guard.believe([A], 2.0) == [A]  # told again, with one deleted meanwhile


def test_one_that_stays_empty_is() -> None:
    guard = LossGuard()
    guard.believe([A], 0.0)
    assert guard.believe([], 1.0) == [A]
    assert guard.believe([], 1.0 + BELIEVED_AFTER_S) == ()
    assert guard.believe([], 100.0) == []


def test_one_deployment_among_others_is_gone_at_once() -> None:
    guard = LossGuard()
    guard.believe([A, B], 0.0)
    assert guard.believe([B], 0.1) == [B]


def test_every_loss_has_its_own_time() -> None:
    guard = LossGuard()
    guard.believe([A], 0.0)
    guard.believe([], 1.0)
    guard.believe([A], 2.0)
    assert guard.believe([], 1.0 + BELIEVED_AFTER_S) == [A]


def test_an_empty_store_at_the_beginning_is_empty() -> None:
    assert LossGuard().believe([], 0.0) == []
