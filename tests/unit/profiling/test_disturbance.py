"""Knots that something disturbed are visited again."""

from __future__ import annotations

from pathlib import Path

from estiba_agent.profiling import FULL
from estiba_agent.profiling.profiler import most_disturbed

from .scripted_engine import Script, Workshop


async def test_steps_that_spread_too_far_are_measured_once_more(tmp_path: Path) -> None:
    calm, shaken = Workshop(tmp_path / "calm"), Workshop(tmp_path / "shaken", Script(noise=lambda n: 1 + n % 2))
    await calm.profile(FULL)
    await shaken.profile(FULL)
    assert len(shaken.measured) == len(calm.measured) + FULL.again


def test_nothing_measured_is_not_disturbed() -> None:
    assert most_disturbed((), 16) is None
