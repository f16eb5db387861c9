"""A model of eight small layers, and a place to measure it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from estiba_agent.models import make_random

from .measured_engine import MeasuringPlace

LAYERS = 8
MODEL = f"random://qwen3?hidden=128&layers={LAYERS}&heads=4&intermediate=512&tokenizer=bytes&seed=1"
DEVICE = "cpu:memory=128MiB,link=200MiB/s"
"""A step that streams all layers waits for the link several times as long as it computes."""


@pytest.fixture(scope="session")
def layered_model(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Its uri, and the cache that it lies in."""
    home = tmp_path_factory.mktemp("layered")
    return f"file://{make_random(MODEL, home, home / 'cache')}", home / "cache"


@pytest.fixture
async def place(tmp_path: Path, layered_model: tuple[str, Path]) -> AsyncIterator[MeasuringPlace]:
    uri, cache = layered_model
    directory = tmp_path / "p"
    directory.mkdir()
    place = MeasuringPlace(directory, uri, DEVICE, cache)
    yield place
    await place.end()
