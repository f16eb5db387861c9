"""The link's rate out of decode steps."""

from __future__ import annotations

import pytest

from estiba_agent.engines.wire import Measurement
from estiba_agent.profiling.link_rate import planning_rate, streaming
from estiba_scheduler.domain import HostLink
from tests.builders import MIB


def steps(streamed_mib: int, step_s: float, compute_s: float = 0.05) -> Measurement:
    return Measurement(
        batch=1,
        context_tokens=16,
        resident_fraction=0.5,
        resident_bytes=1,
        step_s=(step_s,) * 5,
        compute_s=(compute_s,) * 5,
        prefill_s=0.1,
        streamed_bytes_per_step=streamed_mib * MIB,
    )


def test_the_rate_is_the_slope_and_the_rest_is_overhead() -> None:
    found = streaming([steps(n, 0.03 + n / 1000) for n in (100, 200, 400)])
    assert found is not None
    assert found.bytes_per_s == pytest.approx(1000 * MIB)
    assert found.overhead_s == pytest.approx(0.03)


def test_at_a_rate_that_is_known_the_overhead_is_what_that_rate_leaves() -> None:
    found = streaming([steps(n, n / 800) for n in (100, 200, 400)], nominal_bytes_per_s=1000 * MIB)
    assert found is not None
    assert found.bytes_per_s == pytest.approx(800 * MIB)
    assert found.overhead_s == pytest.approx(0.05)


def test_one_residency_gives_bytes_over_time() -> None:
    found = streaming([steps(200, 0.4)])
    assert found is not None
    assert found.bytes_per_s == pytest.approx(500 * MIB)


def test_steps_that_waited_for_nothing_tell_nothing() -> None:
    assert streaming([steps(100, 0.05, compute_s=0.05), steps(0, 0.05)]) is None


def test_noise_never_makes_a_rate_out_of_a_falling_line() -> None:
    found = streaming([steps(100, 0.5), steps(200, 0.4)])
    assert found is not None
    assert found.bytes_per_s > 0


def test_the_planner_is_told_the_rate_that_it_divides() -> None:
    reached = streaming([steps(200, 0.4)])
    assert planning_rate(HostLink(id="l", limit_bytes_per_s=1000 * MIB), reached) == 1000 * MIB
    assert planning_rate(HostLink(id="l"), reached) == pytest.approx(500 * MIB)
    assert planning_rate(None, None) is None
