from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from estiba_scheduler.store import LocalRedis, Store


@pytest.fixture
async def redis_server(tmp_path: Path) -> AsyncIterator[LocalRedis]:
    server = LocalRedis(tmp_path / "redis")
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def store(redis_server: LocalRedis) -> AsyncIterator[Store]:
    store = Store(redis_server.url)
    yield store
    await store.aclose()
