from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from .supervised import SupervisedNode


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """Short enough for unix sockets in it."""
    directory = Path(tempfile.mkdtemp(prefix="est"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
async def node(short_dir: Path) -> AsyncIterator[SupervisedNode]:
    node = SupervisedNode(short_dir)
    await node.begin()
    try:
        yield node
    finally:
        await node.end()
        node.sweep()
