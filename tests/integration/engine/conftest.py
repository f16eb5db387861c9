"""One engine process on a tiny random model, shared by the tests that leave it as they found it: awake and idle."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from estiba_agent.engines.wire import EnginePhase

from .running_engine import RunningEngine, a_launch
from .tiny_model import make_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"file://{make_tiny_model(tmp_path_factory.mktemp('tiny'))}"


@pytest.fixture(scope="session")
def shared_engine(tmp_path_factory: pytest.TempPathFactory, tiny_model: str) -> Iterator[RunningEngine]:
    directory = tmp_path_factory.mktemp("e")
    engine = RunningEngine(directory, a_launch(directory, tiny_model))
    yield engine
    engine.end()


@pytest.fixture
async def engine(shared_engine: RunningEngine) -> AsyncIterator[RunningEngine]:
    """Ready; put back to Ready afterwards."""
    await shared_engine.until_phase(EnginePhase.READY)
    yield shared_engine
    async with shared_engine.control() as control:
        phase = (await control.state()).phase
        if phase in (EnginePhase.ASLEEP1, EnginePhase.ASLEEP2):
            await control.wake(shared_engine.full_wake())
        elif phase is not EnginePhase.READY:
            await control.resume()


@pytest.fixture
def engine_directory(tmp_path: Path) -> Path:
    """Short enough for a unix socket in it."""
    directory = tmp_path / "e"
    directory.mkdir()
    return directory
