"""Where to measure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from estiba_agent.profiling.residencies import even_grid, left_out, levels_within, where_it_bends
from tests.builders import MIB, a_footprint

LEVELS = tuple(range(100, 501, 20))


def hinge(level: int, knee: int = 380) -> float:
    return 0.1 + max(0, knee - level) * 0.01


def test_levels_that_fit_leave_room_for_the_ring_and_the_cache() -> None:
    foot = a_footprint()
    whole = 500 * MIB + 3 * MIB
    assert levels_within(foot, whole, 0)[-1] == 500 * MIB
    kept = levels_within(foot, whole, MIB)
    assert kept[-1] == 380 * MIB, "one layer less needs a ring of two"
    assert levels_within(foot, 100 * MIB, 0) == ()


@given(st.sets(st.integers(0, 10**9), min_size=1, max_size=90), st.integers(2, 12))
def test_a_grid_has_both_ends_and_no_more_than_was_asked_for(levels: set[int], count: int) -> None:
    grid = even_grid(sorted(levels), count)
    assert len(grid) <= max(count, 1)
    assert (grid[0], grid[-1]) == (min(levels), max(levels))
    assert set(grid) <= levels


def test_refining_closes_in_on_the_knee() -> None:
    known = {level: hinge(level) for level in even_grid(LEVELS, 5)}
    for _ in range(4):
        level = where_it_bends(LEVELS, known)
        assert level is not None
        known[level] = hinge(level)
    nearest = sorted(known, key=lambda level: abs(level - 380))[:3]
    assert max(nearest) - min(nearest) <= 60, known


def test_a_straight_curve_gets_its_widest_gap_halved() -> None:
    known = {100: 0.3, 200: 0.25, 500: 0.1}
    assert where_it_bends(LEVELS, known) == 340


def test_nothing_is_left_to_refine_between_neighbours() -> None:
    assert where_it_bends((1, 2, 3), {1: 3.0, 2: 2.0, 3: 0.1}) is None
    assert where_it_bends((1, 2, 3), {1: 3.0}) is None


@given(st.sets(st.sampled_from(LEVELS), min_size=2), st.integers(0, 4))
def test_what_is_left_out_was_not_taken_and_lies_between_what_was(taken: set[int], count: int) -> None:
    chosen = left_out(LEVELS, taken, count)
    assert taken.isdisjoint(chosen)
    assert len(chosen) == len(set(chosen)) <= count
    assert all(min(taken) < level < max(taken) for level in chosen)


def test_a_model_of_two_layers_has_nothing_to_leave_out() -> None:
    assert left_out((1, 2, 3), (1, 2, 3), 3) == ()
