"""A Redis, a gateway and scripted engines for each test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from estiba_scheduler.store import LocalRedis

from .scripted_engine import ScriptedEngine
from .waterfront import Waterfront, a_waterfront


@pytest.fixture
def directory() -> Iterator[Path]:
    """Short enough for a unix socket in it."""
    made = Path(tempfile.mkdtemp(prefix="gw"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
async def redis(directory: Path) -> AsyncIterator[LocalRedis]:
    server = LocalRedis(directory / "redis")
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def front(directory: Path, redis: LocalRedis) -> AsyncIterator[Waterfront]:
    async with a_waterfront(directory, redis) as waterfront:
        yield waterfront


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    """Of deployment `a`; it listens, and no agent has reported it yet."""
    scripted = await ScriptedEngine().start()
    yield scripted
    await scripted.stop()


@pytest.fixture
async def other_engine() -> AsyncIterator[ScriptedEngine]:
    """A second one of the same deployment."""
    scripted = await ScriptedEngine("a-2").start()
    yield scripted
    await scripted.stop()
