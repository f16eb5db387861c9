from __future__ import annotations

import pytest
from bench.workload import Share, is_good, quantile, sequence

from estiba.chat_probe import Answer
from estiba_scheduler.domain import Objectives

SHARES = {"a": Share(0.5, 2.0, 24), "b": Share(0.1, 1.0, 8)}


def test_the_same_seed_gives_the_same_requests_and_another_one_others() -> None:
    assert sequence(SHARES, 100, 1) == sequence(SHARES, 100, 1)
    assert sequence(SHARES, 100, 1) != sequence(SHARES, 100, 2)


def test_one_model_more_changes_nothing_for_the_others() -> None:
    alone = [r for r in sequence({"a": SHARES["a"]}, 100, 1) if r.model == "a"]
    assert alone == [r for r in sequence(SHARES, 100, 1) if r.model == "a"]


def test_requests_are_in_order_within_the_time_and_as_many_as_was_asked() -> None:
    made = sequence(SHARES, 4000, 3)
    assert [r.at_s for r in made] == sorted(r.at_s for r in made)
    assert all(0 <= r.at_s < 4000 for r in made)
    of_a = [r for r in made if r.model == "a"]
    assert len(of_a) == pytest.approx(0.5 * 2.0 * 4000, rel=0.1)
    assert len(made) - len(of_a) == pytest.approx(0.1 * 4000, rel=0.2)
    assert sorted(r.max_tokens for r in of_a)[len(of_a) // 2] == pytest.approx(24, abs=2)
    assert min(r.max_tokens for r in of_a) >= 4


@pytest.mark.parametrize(
    ("changes", "good"),
    [
        ({}, True),
        ({"ttft_s": 2.01}, False),
        ({"ttft_s": None}, False),
        ({"total_s": 3.0}, False),
        ({"error": "it broke"}, False),
        ({"status": 503}, False),
        ({"finish_reason": ""}, False),
        ({"tokens": 1, "total_s": 9.0}, True),
    ],
)
def test_good_is_answered_within_both_objectives(changes: dict[str, object], good: bool) -> None:
    fields: dict[str, object] = {
        "model": "a",
        "sent_at": 0.0,
        "status": 200,
        "tokens": 11,
        "ttft_s": 1.0,
        "total_s": 2.0,
        "finish_reason": "stop",
    }
    answer = Answer(**fields | changes)  # type: ignore[arg-type]
    assert is_good(answer, Objectives(ttft_s=2.0, tpot_s=0.1)) is good


def test_quantiles() -> None:
    assert quantile([], 0.5) is None
    assert quantile([3.0], 0.95) == 3.0
    assert quantile([float(n) for n in range(1, 102)], 0.95) == pytest.approx(96.0)
    assert quantile([1.0, 2.0], 0.5) == 1.5
