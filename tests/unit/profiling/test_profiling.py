"""What a profile says of a scripted engine, whose truth is known."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from estiba_agent.engines.wire import WakeRequest
from estiba_agent.profiling import FULL, QUICK, Effort, ProfilingCancelled, TooLittleMemory
from estiba_agent.profiling.records import FILE, FINISHED
from estiba_scheduler.domain import Provenance, Rung
from estiba_scheduler.prediction import DecodeCurve, predict_tpot_s
from estiba_scheduler.prediction.streaming import knee_fraction, step_s
from tests.builders import MIB, a_footprint

from .scripted_engine import COMPUTE_S, KEY, LINK, RSS_BYTES, Script, Workshop

SMALL = Effort(residencies=3, most_steps=4)


# -- what is measured -------------------------------------------------------------------------------------------------


async def test_knots_are_medians_that_one_slow_step_does_not_move(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, Script(noise=lambda n: 9.0 if n == 2 else 1.0))
    foot = workshop.script.footprint
    result = await workshop.profile()
    base = [k for k in result.profile.sensitivity.knots if k.batch == 1 and k.context_tokens == QUICK.context_tokens]
    assert len(base) == QUICK.residencies
    for knot in base:
        streamed = (1 - knot.resident_fraction) * foot.weight_bytes
        truth = step_s(COMPUTE_S + 1e-5 * QUICK.context_tokens, streamed, LINK)
        assert knot.tpot_s == pytest.approx(truth)
        assert knot.provenance is Provenance.MEASURED
        assert knot.samples >= QUICK.least_steps


async def test_knots_are_monotone_within_their_spread(tmp_path: Path) -> None:
    result = await Workshop(tmp_path, Script(noise=lambda n: 1 + 0.03 * (-1) ** n)).profile(FULL)
    base = [k for k in result.profile.sensitivity.knots if k.batch == 1 and k.context_tokens == FULL.context_tokens]
    for more, less in itertools.pairwise(base):
        assert less.tpot_s + less.spread_s >= more.tpot_s - more.spread_s


async def test_a_full_profile_puts_knots_at_the_bend_and_predicts_what_it_has_not_seen(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, Script(noise=lambda n: 1 + 0.02 * (-1) ** n))
    result = await workshop.profile(FULL)
    assert len(result.validation) == 3
    assert all(v.error < 0.05 for v in result.validation), result.validation
    base = {k.resident_fraction for k in result.profile.sensitivity.knots if k.context_tokens == FULL.context_tokens}
    assert len(base) >= 7
    assert base.isdisjoint(v.resident_fraction for v in result.validation)
    knee = knee_fraction(COMPUTE_S, LINK, workshop.script.footprint.weight_bytes)
    assert sum(abs(f - knee) < 0.12 for f in base) >= 2, base
    found = DecodeCurve(result.profile).knee_bytes() / workshop.script.footprint.weight_bytes
    assert found == pytest.approx(knee, abs=0.05)


async def test_the_larger_batch_and_the_longer_context_are_told_to_the_prediction(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    profile = (await workshop.profile()).profile
    four, one = (predict_tpot_s(profile, resident_fraction=1.0, batch=b).tpot_s for b in (4, 1))
    assert four / one == pytest.approx(1.3, rel=0.01)
    far = predict_tpot_s(profile, resident_fraction=1.0, context=1016)
    assert far.tpot_s - one == pytest.approx(0.01, rel=0.01)
    assert profile.sensitivity.prefill_s_per_token == pytest.approx(0.01)


async def test_what_streaming_costs_beyond_the_link_is_kept_apart(tmp_path: Path) -> None:
    sensitivity = (await Workshop(tmp_path, Script(overhead_s=0.02)).profile()).profile.sensitivity
    assert sensitivity.stream_overhead_s == pytest.approx(0.02, rel=0.01)
    assert sensitivity.link_bytes_per_s == LINK


async def test_the_ladder_is_measured_away_and_back(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    profile = (await workshop.profile(FULL)).profile
    sleep1, cold = profile.rung(Rung.SLEEP1), profile.rung(Rung.COLD)
    assert sleep1 is not None
    assert cold is not None
    assert (sleep1.unload_s, sleep1.seconds_s) == (pytest.approx(0.3), pytest.approx(0.9))
    assert sleep1.fixed_s == pytest.approx(0.2), "the canary is no part of moving bytes"
    assert sleep1.bytes_per_s == pytest.approx(workshop.script.footprint.weight_bytes / 0.7)
    assert sleep1.samples == FULL.sleep1_repetitions
    assert (cold.unload_s, cold.seconds_s, cold.samples) == (pytest.approx(0.25), 5.0, 2)
    assert {rung.provenance for rung in profile.reload} == {Provenance.MEASURED}
    wakes = [call for call in workshop.calls if isinstance(call, WakeRequest)]
    assert sum(not wake.verify for wake in wakes) == 2, "one bare wake a level, and all others verified"


async def test_the_footprint_is_the_most_that_was_seen(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    footprint = (await workshop.profile()).profile.footprint
    assert footprint.activation_bytes == 3 * MIB
    assert footprint.host_factor == pytest.approx(1.9)
    assert footprint.sleep1_device_bytes == workshop.script.footprint.overhead_bytes
    assert footprint.sleep1_host_bytes == footprint.weight_bytes
    asleep2 = RSS_BYTES - workshop.script.footprint.overhead_bytes
    assert footprint.process_host_bytes == asleep2, "at sleep level 2 the process holds nothing else"
    assert footprint.provenance is Provenance.MEASURED


async def test_estimates_are_held_against_what_was_measured(tmp_path: Path) -> None:
    ratios = (await Workshop(tmp_path).profile()).profile.predicted_to_actual
    assert ratios["activation_bytes"] == pytest.approx(5, rel=0.01)  # 3 % of 500 MiB, and 3 MiB were seen
    assert ratios["tpot_s"] == pytest.approx(500 * MIB / (8e9 * 0.6) / (COMPUTE_S + 16e-5), rel=0.01)
    assert set(ratios) >= {"sleep1_s", "sleep2_s", "cold_s"}


async def test_progress_ends_where_it_said_it_would(tmp_path: Path) -> None:
    for effort in (QUICK, FULL):
        workshop = Workshop(tmp_path / str(effort.rounds))
        await workshop.profile(effort)
        done = [told[0] for told in workshop.told]
        assert done == sorted(done)
        assert all(told[0] <= told[1] for told in workshop.told)
        assert workshop.told[-1][0] == workshop.told[-1][1] == len(workshop.told) - 1, workshop.told


# -- what is not believed ---------------------------------------------------------------------------------------------


async def test_points_of_an_engine_that_ignores_offloading_are_rejected(tmp_path: Path) -> None:
    """O1: the flag is taken and nothing leaves the device."""
    workshop = Workshop(tmp_path, Script(achieved=lambda asked: 500 * MIB))
    result = await workshop.profile()
    sensitivity = result.profile.sensitivity
    assert len(sensitivity.rejected) == QUICK.residencies - 1
    assert all("does not offload" in knot.reason for knot in sensitivity.rejected)
    assert {k.resident_fraction for k in sensitivity.knots if k.provenance is Provenance.MEASURED} == {1.0}
    assert any("rejected" in lack for lack in result.lacks)
    assert any("fewer than two measured residencies" in lack for lack in result.lacks)


async def test_a_point_of_an_engine_that_keeps_offloaded_what_would_fit_is_rejected(tmp_path: Path) -> None:
    """O2: asked to come back, it stays as it is."""
    lowest = a_footprint().fixed_bytes
    sensitivity = (await Workshop(tmp_path, Script(achieved=lambda asked: lowest)).profile()).profile.sensitivity
    assert {round(k.resident_fraction, 2) for k in sensitivity.rejected} == {1.0, 0.76, 0.6, 0.36}
    assert all("more than a layer less" in knot.reason for knot in sensitivity.rejected)
    measured = {round(k.resident_fraction, 2) for k in sensitivity.knots if k.provenance is Provenance.MEASURED}
    assert measured == {0.2}


async def test_a_point_is_rejected_where_the_device_holds_more_than_the_engine_says(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, Script(device_bytes=lambda resident: 560 * MIB))
    sensitivity = (await workshop.profile()).profile.sensitivity
    assert sensitivity.rejected
    assert all("holds 560 MiB on the device" in knot.reason for knot in sensitivity.rejected)


async def test_a_residency_that_the_engine_refuses_is_passed_over_with_its_reason(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, Script(refuses_residency=frozenset({a_footprint().fixed_bytes})))
    result = await workshop.profile()
    (rejected,) = result.profile.sensitivity.rejected
    assert "OutOfMemory: short of 12 MiB" in rejected.reason
    base = [k for k in result.profile.sensitivity.knots if k.batch == 1 and k.context_tokens == QUICK.context_tokens]
    assert len(base) == QUICK.residencies - 1


async def test_a_rung_that_the_engine_does_not_do_is_left_out(tmp_path: Path) -> None:
    result = await Workshop(tmp_path, Script(sleep_levels=(1,))).profile()
    assert [rung.rung for rung in result.profile.reload] == [Rung.SLEEP1, Rung.COLD]
    assert any("sleep2 is left out" in lack for lack in result.lacks)


async def test_a_rung_that_answers_garbage_after_the_wake_is_left_out_and_the_rest_is_measured(tmp_path: Path) -> None:
    """S3: the canary differs, the engine has failed; a new one goes on."""
    workshop = Workshop(tmp_path, Script(canary_fails_at=1))
    result = await workshop.profile()
    assert [rung.rung for rung in result.profile.reload] == [Rung.SLEEP2, Rung.COLD]
    assert len(workshop.engines) == 2
    assert workshop.running == 0


# -- in what room, in what time ---------------------------------------------------------------------------------------


async def test_of_a_model_larger_than_the_device_only_what_fits_is_asked(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, memory_mib=400)
    result = await workshop.profile(SMALL)
    (resident, kv_bytes, budget), foot = workshop.starts[0], workshop.script.footprint
    assert resident is not None
    assert budget == 400 * MIB
    assert resident + foot.stream_buffer_bytes + kv_bytes + foot.overhead_bytes < budget
    assert max(k.resident_fraction for k in result.profile.sensitivity.knots) == resident / foot.weight_bytes
    assert "full residency was not measured" in result.lacks


async def test_a_model_whose_least_does_not_fit_is_refused_with_numbers(tmp_path: Path) -> None:
    with pytest.raises(TooLittleMemory, match="120 MiB may be used"):
        await Workshop(tmp_path, memory_mib=120).profile(SMALL)


async def test_without_facts_the_engine_starts_offloaded_and_is_then_filled(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    result = await workshop.profile(SMALL, facts=None)
    assert workshop.starts[0][0] == 0
    assert max(k.resident_fraction for k in result.profile.sensitivity.knots) == 1.0


async def test_what_the_time_was_too_short_for_stays_estimated_and_is_named(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, Script(hangs_at_measure=3))
    result = await workshop.profile(budget_s=0.3)
    profile = result.profile
    assert len([k for k in profile.sensitivity.knots if k.provenance is Provenance.MEASURED]) == 2
    assert {r.rung: r.provenance for r in profile.reload} == {
        Rung.SLEEP1: Provenance.ESTIMATED,
        Rung.SLEEP2: Provenance.ESTIMATED,
        Rung.COLD: Provenance.MEASURED,
    }
    assert {"sleep1 is estimated", "sleep2 is estimated"} < set(result.lacks)
    assert "for measuring were over" in result.lacks[0]
    assert workshop.running == 0
    ends = {round(k.resident_fraction, 2) for k in profile.sensitivity.knots}
    assert ends == {0.2, 1.0}, "the two ends come first"


async def test_an_engine_that_is_not_up_in_time_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="no engine was ready within 50 ms"):
        await Workshop(tmp_path, Script(hangs_at_start=True)).profile(budget_s=0.05)


# -- broken off and gone on with --------------------------------------------------------------------------------------


async def test_cancelled_it_stops_its_engine_and_another_call_goes_on_from_there(tmp_path: Path) -> None:
    whole = Workshop(tmp_path / "whole")
    expected = await whole.profile()
    workshop = Workshop(tmp_path)
    workshop.cancel_after = 5
    with pytest.raises(ProfilingCancelled):
        await workshop.profile()
    assert workshop.running == 0
    before = len(workshop.measured)
    workshop.cancel_after = None
    result = await workshop.profile()
    assert before + len(workshop.measured) == len(whole.measured), "nothing is measured twice"
    assert result.profile.sensitivity == expected.profile.sensitivity


async def test_with_everything_in_the_book_no_engine_is_started(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    first = await workshop.profile(SMALL)
    (workshop.store_dir / FINISHED).rename(workshop.store_dir / FILE)
    again = await workshop.profile(SMALL)
    assert len(workshop.starts) == 1
    assert again.profile.sensitivity == first.profile.sensitivity
    assert again.profile.reload == first.profile.reload


async def test_a_finished_profile_is_measured_anew_when_it_is_asked_for_again(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    await workshop.profile(SMALL)
    count = len(workshop.measured)
    await workshop.profile(SMALL)
    assert len(workshop.measured) == count
    assert len(workshop.starts) == 2


async def test_a_torn_last_line_costs_that_measurement_alone(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    workshop.cancel_after = 4
    with pytest.raises(ProfilingCancelled):
        await workshop.profile(SMALL)
    file = workshop.store_dir / FILE
    lines = file.read_bytes().splitlines(keepends=True)
    torn = json.loads(lines[-1])["record"]
    assert torn["kind"] == "stepped"
    file.write_bytes(b"".join(lines)[:-40])
    workshop.cancel_after = None
    await workshop.profile(SMALL)
    assert workshop.measured[0].batch == torn["measurement"]["batch"]
    records = [json.loads(line) for line in (workshop.store_dir / FINISHED).read_bytes().splitlines() if _whole(line)]
    assert sum(r["record"]["kind"] == "stepped" and r["record"]["asked_bytes"] == torn["asked_bytes"] for r in records)


async def test_measurements_of_another_key_are_not_used(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    workshop.cancel_after = 5
    with pytest.raises(ProfilingCancelled):
        await workshop.profile(SMALL, key=KEY.model_copy(update={"dtype": "bfloat16"}))
    workshop.cancel_after = None
    await workshop.profile(SMALL)
    assert len(workshop.measured) == 5


async def test_measurements_of_the_day_before_are_not_used(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    workshop.cancel_after = 5
    with pytest.raises(ProfilingCancelled):
        await workshop.profile(SMALL)
    workshop.cancel_after = None
    workshop.clock.pass_s(25 * 3600)
    await workshop.profile(SMALL)
    assert len(workshop.measured) == 5


def _whole(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
