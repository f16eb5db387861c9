"""A gateway and scripted engines for each test, on one Redis that is empty before each."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis.asyncio as redis_asyncio

from estiba_scheduler.store import LocalRedis

from .scripted_engine import ScriptedEngine
from .waterfront import Waterfront, a_waterfront


@pytest.fixture
def directory() -> Iterator[Path]:
    """Short enough for a unix socket in it."""
    made = Path(tempfile.mkdtemp(prefix="gw"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[LocalRedis]:
    directory = Path(tempfile.mkdtemp(prefix="gw"))
    server = LocalRedis(directory)
    yield server
    asyncio.run(server.stop())
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
async def redis(shared_redis: LocalRedis) -> LocalRedis:
    """Running and empty; a test may stop it."""
    if not shared_redis.running:
        await shared_redis.start()
    client = redis_asyncio.Redis.from_url(shared_redis.url)
    await client.flushall()
    await client.aclose()
    return shared_redis


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
