"""What is made once is made by one, whole or not at all."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from estiba_agent.models import BadModel
from estiba_agent.models.cache import kept

from ...waiting import until

FOREVER = 10**18


def test_two_who_want_it_at_once_share_one_making(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("estiba_agent.models.cache.SAY_EVERY_S", 0.0)
    made: list[Path] = []
    said: list[str] = []
    begun, may_end = threading.Event(), threading.Event()

    def make(folder: Path) -> None:
        made.append(folder)
        begun.set()
        assert may_end.wait(30)
        (folder / "whole").touch()

    with ThreadPoolExecutor() as threads:
        first = threads.submit(kept, tmp_path, "key", make, uri="u", need_bytes=0)
        assert begun.wait(30)
        second = threads.submit(kept, tmp_path, "key", make, uri="u", need_bytes=0, progress=said.append)
        until(lambda: said, 30, "the second waits and says so")
        assert "waiting for another process to make key" in said[0]
        assert not (tmp_path / "key").exists()
        may_end.set()
        assert first.result(30) == second.result(30) == tmp_path / "key"
    assert len(made) == 1
    assert (tmp_path / "key" / "whole").exists()


def test_a_making_that_fails_leaves_nothing_and_the_next_tries_again(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise RuntimeError("broke off")

    with pytest.raises(RuntimeError):
        kept(tmp_path, "key", fail, uri="u", need_bytes=0)
    assert [p for p in tmp_path.iterdir() if p.is_dir()] == []
    assert kept(tmp_path, "key", lambda folder: (folder / "whole").touch(), uri="u", need_bytes=0).is_dir()


def test_what_a_dead_process_left_is_cleared(tmp_path: Path) -> None:
    left_over = tmp_path / ".key.12345.part"
    left_over.mkdir(parents=True)
    kept(tmp_path, "key", lambda folder: None, uri="u", need_bytes=0)
    assert not left_over.exists()


def test_a_full_disk_is_said_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=r"are needed in .*, .* are free; make room"):
        kept(tmp_path, "key", lambda folder: pytest.fail("made"), uri="u", need_bytes=FOREVER)
