"""A profile as a person reads it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from estiba.curve_plot import Points, bar, curve
from estiba.profile_report import render
from estiba_agent.profiling import FULL, ProfilingResult
from estiba_scheduler.domain import Device, ModelProfile, ProfileKey, RejectedKnot, Rung
from estiba_scheduler.prediction import ModelFacts, estimate_profile
from tests.builders import MIB, a_device

from .scripted_engine import KEY, Workshop


@pytest.fixture
async def full(tmp_path: Path) -> ProfilingResult:
    return await Workshop(tmp_path).profile(FULL)


def shown(result: ProfilingResult, encoding: str = "utf-8", **console: object) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    render(result.profile, result.validation, Console(file=file, **console), result.lacks)  # type: ignore[arg-type]
    file.flush()
    return file.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]


async def test_in_a_pipe_it_has_no_escapes_and_keeps_within_eighty_columns(full: ProfilingResult) -> None:
    text = shown(full)
    assert "\x1b" not in text
    tables = [line for line in text.splitlines() if line.startswith(" ")]
    assert max(map(len, tables)) <= 80
    assert "measured" in text


async def test_it_tells_the_knots_the_ladder_the_knee_and_the_check(full: ProfilingResult) -> None:
    text = shown(full, width=80)
    for knot in full.profile.sensitivity.knots:
        assert f"\n {knot.resident_fraction:.0%} " in text
    assert "r* = 1 - compute x link / weights" in text
    assert "Check of the fit" in text
    for rung in Rung:
        assert f"\n {rung.value} " in text


async def test_ascii_is_enough(full: ProfilingResult) -> None:
    text = shown(full, encoding="ascii")
    assert "?" not in text
    assert "Check of the fit" in text


async def test_rejected_points_and_lacks_are_told_with_their_reasons(full: ProfilingResult) -> None:
    rejected = RejectedKnot(resident_fraction=0.4, achieved_fraction=1.0, reason="nothing left the device")
    sensitivity = full.profile.sensitivity.model_copy(update={"rejected": (rejected,)})
    profile = full.profile.model_copy(update={"sensitivity": sensitivity, "reload": full.profile.reload[1:]})
    text = shown(ProfilingResult(profile=profile, lacks=("sleep1 is left out: it refused",)))
    assert "nothing left the device" in text
    assert "Note: sleep1 is left out" in text
    assert "not usable" in text


async def test_an_estimate_is_never_shown_as_measured() -> None:
    profile = estimated(KEY, a_device())
    text = shown(ProfilingResult(profile=profile))
    assert "never measured" in text
    assert "estimated" in text
    assert " measured" not in text.replace("never measured", "").replace("measured figure", "")


def estimated(key: ProfileKey, device: Device) -> ModelProfile:
    facts = ModelFacts(
        weight_bytes=500 * MIB, fixed_bytes=100 * MIB, layer_bytes=(40 * MIB,) * 10, kv_bytes_per_token=16384
    )
    return estimate_profile(key, facts, device)


def test_points_lie_where_their_values_are() -> None:
    lines = curve(
        lambda x: 1 - x / 2, [Points("X", [(0.0, 1.0)]), Points("Y", [(1.0, 0.5)])], str, plain=True, width=20
    )
    body = [line.partition("|")[2] for line in lines[:-2]]
    assert body[0].index("X") == 0
    assert next(i for i, line in enumerate(body) if "Y" in line) == 7
    assert max(line.find("Y") for line in body) == 19


def test_bars_are_as_long_as_their_values() -> None:
    assert len(bar(1.0, 2.0, width=10)) == 5
    assert bar(2.0, 2.0, width=4, plain=True) == "####"
    assert bar(0.001, 100.0)
    assert bar(0.0, 1.0) == ""
