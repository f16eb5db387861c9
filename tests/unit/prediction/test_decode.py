from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from estiba_scheduler.domain import Knot, Provenance, Sensitivity
from estiba_scheduler.prediction import DecodeCurve, fully_resident_tpot_s, predict_tpot_s, slowdown
from estiba_scheduler.prediction.monotone import nondecreasing
from estiba_scheduler.prediction.streaming import knee_fraction, step_s
from tests.builders import MIB, a_footprint, a_profile


def with_knots(knots: list[Knot], link_mib_s: float | None = 1024.0, **changes: float):
    link = link_mib_s * MIB if link_mib_s else None
    sensitivity = Sensitivity(knots=tuple(knots), link_bytes_per_s=link, **changes)
    return a_profile().model_copy(update={"sensitivity": sensitivity})


def test_isotonic_fit_pools_violators_by_weight() -> None:
    assert nondecreasing([1, 3, 2, 4], [1, 1, 1, 1]) == (1, 2.5, 2.5, 4)
    assert nondecreasing([3, 1], [3, 1]) == (2.5, 2.5)


@given(st.lists(st.tuples(st.floats(0.01, 10), st.floats(0.1, 10)), min_size=1, max_size=12))
def test_isotonic_fit_is_monotone_and_keeps_the_mean(points: list[tuple[float, float]]) -> None:
    values, weights = [p[0] for p in points], [p[1] for p in points]
    fitted = nondecreasing(values, weights)
    assert all(a <= b + 1e-9 for a, b in itertools.pairwise(fitted))
    assert sum(f * w for f, w in zip(fitted, weights, strict=True)) == pytest.approx(
        sum(v * w for v, w in zip(values, weights, strict=True))
    )


@pytest.mark.parametrize("link_mib_s", [512, 1024, 2048])
@pytest.mark.parametrize("seed", range(4))
def test_fractions_left_out_of_the_fit_are_predicted_within_15_percent(link_mib_s: float, seed: int) -> None:
    """Noise of 4 % and a copying overhead, as seen on a streaming cpu engine; knots at five fractions."""
    noise, foot = random.Random(seed), a_footprint()

    def measured(fraction: float) -> float:
        step = step_s(0.06, (1 - fraction) * foot.weight_bytes, link_mib_s * MIB, 0.004)
        return step * noise.uniform(0.96, 1.04)

    knots = [Knot(resident_fraction=f, tpot_s=measured(f), samples=8) for f in (1.0, 0.85, 0.6, 0.4, 0.2)]
    profile = with_knots(knots, link_mib_s)
    for fraction in (0.92, 0.72, 0.5, 0.3):
        predicted = predict_tpot_s(profile, resident_fraction=fraction).tpot_s
        assert predicted == pytest.approx(measured(fraction), rel=0.15), fraction


def test_the_knee_between_two_knots_is_found() -> None:
    """Knots at full and half residency only; the knee at 0.8 lies between them and is known to nobody."""
    foot = a_footprint()
    profile = a_profile(compute_s=0.1, link_mib_s=1024, fractions=(1.0, 0.5, 0.3))
    knee = knee_fraction(0.1, 1024 * MIB, foot.weight_bytes)
    assert knee == pytest.approx(0.795, abs=0.01)
    assert predict_tpot_s(profile, resident_fraction=knee).tpot_s == pytest.approx(0.1, rel=0.02)
    assert DecodeCurve(profile).knee_bytes() / foot.weight_bytes == pytest.approx(knee, abs=0.02)


def test_above_the_knee_bytes_buy_nothing_and_below_it_the_curve_is_linear() -> None:
    profile = a_profile(compute_s=0.1, fractions=(1.0, 0.9, 0.7, 0.5, 0.3))
    at = {f: predict_tpot_s(profile, resident_fraction=f).tpot_s for f in (0.95, 0.85, 0.6, 0.5, 0.4)}
    assert at[0.95] == pytest.approx(0.1)
    assert at[0.85] == pytest.approx(0.1)
    assert at[0.4] - at[0.5] == pytest.approx(at[0.5] - at[0.6], rel=0.01)


def test_a_measured_knot_wins_over_the_formula() -> None:
    knots = [Knot(resident_fraction=f, tpot_s=t) for f, t in ((1.0, 0.1), (0.6, 0.5), (0.2, 0.6))]
    assert predict_tpot_s(with_knots(knots), resident_fraction=0.6).tpot_s == pytest.approx(0.5)


def test_a_knot_slower_than_one_with_fewer_bytes_is_smoothed() -> None:
    knots = [Knot(resident_fraction=f, tpot_s=t) for f, t in ((1.0, 0.1), (0.8, 0.3), (0.6, 0.2), (0.2, 0.6))]
    curve = DecodeCurve(with_knots(knots))
    steps = [curve.predict(int(f / 50 * 500 * MIB)).tpot_s for f in range(10, 51)]
    assert all(a >= b - 1e-9 for a, b in itertools.pairwise(steps))


@given(
    steps=st.lists(st.floats(0.01, 2.0), min_size=2, max_size=7),
    link=st.one_of(st.none(), st.floats(100, 5000)),
    batch=st.integers(1, 16),
)
def test_more_bytes_never_predict_slower_decoding(steps: list[float], link: float | None, batch: int) -> None:
    knots = [Knot(resident_fraction=1 - i * 0.8 / (len(steps) - 1), tpot_s=s) for i, s in enumerate(steps)]
    curve = DecodeCurve(with_knots(knots, link))
    seen = [curve.predict(r * 10 * MIB, batch).tpot_s for r in range(10, 51)]
    assert all(a >= b - 1e-9 for a, b in itertools.pairwise(seen))


def test_half_of_the_link_moves_the_knee_and_doubles_the_slope() -> None:
    profile = a_profile(compute_s=0.1)
    alone = predict_tpot_s(profile, resident_fraction=0.4).tpot_s
    shared = predict_tpot_s(profile, resident_fraction=0.4, link_share_bytes_per_s=512 * MIB)
    assert shared.tpot_s == pytest.approx(2 * alone, rel=0.02)
    assert shared.provenance is Provenance.FITTED
    assert predict_tpot_s(profile, resident_fraction=1.0, link_share_bytes_per_s=512 * MIB).tpot_s == pytest.approx(0.1)


def test_provenance_is_carried() -> None:
    profile = a_profile()
    assert predict_tpot_s(profile, resident_fraction=0.5).provenance is Provenance.MEASURED
    guess = Knot(resident_fraction=1.0, tpot_s=0.1, provenance=Provenance.ESTIMATED)
    assert predict_tpot_s(with_knots([guess]), resident_fraction=0.5).provenance is Provenance.ESTIMATED
    measured = Knot(resident_fraction=1.0, tpot_s=0.2)
    both = with_knots([guess, measured])
    assert predict_tpot_s(both, resident_fraction=1.0).tpot_s == pytest.approx(0.2)


def test_one_knot_and_the_link_give_the_rest_of_the_curve() -> None:
    profile = with_knots([Knot(resident_fraction=1.0, tpot_s=0.1)])
    predicted = predict_tpot_s(profile, resident_fraction=0.4)
    assert predicted.tpot_s == pytest.approx(300 / 1024, rel=0.01)
    assert predicted.provenance is Provenance.FITTED


def test_no_knots_at_all_is_a_labelled_guess() -> None:
    predicted = predict_tpot_s(with_knots([]), resident_fraction=1.0)
    assert predicted.provenance is Provenance.ESTIMATED
    assert predicted.spread_s >= predicted.tpot_s / 2


def test_batches_between_and_beyond_the_measured_ones() -> None:
    knots = [Knot(resident_fraction=f, tpot_s=t) for f, t in ((1.0, 0.1), (0.6, 0.2), (0.2, 0.4))]
    knots.append(Knot(resident_fraction=1.0, batch=5, tpot_s=0.18))
    profile = with_knots(knots)
    assert fully_resident_tpot_s(profile, batch=5) == pytest.approx(0.18)
    assert fully_resident_tpot_s(profile, batch=3) == pytest.approx(0.14)
    assert fully_resident_tpot_s(profile, batch=9) == pytest.approx(0.26)
    # The streamed bytes of a step are the same for every batch: far below the knee nothing is added.
    assert predict_tpot_s(profile, resident_fraction=0.2, batch=5).tpot_s == pytest.approx(0.4)


def test_an_unmeasured_batch_adds_five_percent_of_compute_a_sequence() -> None:
    assert fully_resident_tpot_s(a_profile(compute_s=0.1), batch=5) == pytest.approx(0.12)


def test_a_longer_context_adds_what_was_measured() -> None:
    knots = [Knot(resident_fraction=f, context_tokens=32, tpot_s=t) for f, t in ((1.0, 0.1), (0.5, 0.2))]
    knots.append(Knot(resident_fraction=1.0, context_tokens=1032, tpot_s=0.15))
    assert predict_tpot_s(with_knots(knots), resident_fraction=1.0, context=532).tpot_s == pytest.approx(0.125)


def test_slowdown_is_relative_to_full_residency() -> None:
    assert slowdown(a_profile(compute_s=0.1), 200 * MIB) == pytest.approx(300 / 1024 / 0.1, rel=0.02)


def test_saying_no_residency_is_an_error() -> None:
    with pytest.raises(ValueError, match="resident"):
        predict_tpot_s(a_profile())
