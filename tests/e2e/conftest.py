from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from .running_up import RunningUp, a_document, write


@pytest.fixture(autouse=True)
def a_cache_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tiny models don't belong into the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def directory() -> Iterator[Path]:
    """Short enough for unix sockets in it."""
    made = Path(tempfile.mkdtemp(prefix="est"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
async def up(directory: Path) -> AsyncIterator[RunningUp]:
    """Serving `a`, which is kept awake."""
    running = RunningUp(directory, write(directory / "a.yaml", a_document("a", replicas={"min": 1})))
    running.start()
    try:
        await running.answers()
        await running.until_ready("a")
        yield running
    finally:
        running.kill_all()
