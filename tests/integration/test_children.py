"""Processes that are kept running: real ones, and short."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from estiba.up.children import Child, end_left_over, remember
from estiba_agent.process_start import started_at_s
from tests.waiting import until

STAYS = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)"]
ENDS = [sys.executable, "-c", "print('no use'); raise SystemExit(3)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True); time.sleep(600)",
]


async def test_a_process_that_is_killed_is_started_again(tmp_path: Path) -> None:
    child = Child("a", STAYS, tmp_path / "a.log")
    child.start()
    first = child.pid
    assert not child.keep(), "it runs"
    psutil.Process(first).kill()
    until(lambda: child.keep(), 20)
    assert child.running
    assert child.pid != first
    assert child.restarts == 1
    await child.end()
    assert not child.running


async def test_what_keeps_ending_is_started_ever_more_rarely_and_its_last_words_are_kept(tmp_path: Path) -> None:
    child = Child("a", ENDS, tmp_path / "a.log")
    child.start()
    pauses = []
    for _ in range(3):
        until(lambda: not child.running, 20)
        assert not child.keep()
        pauses.append(child._pause_s)
        until(lambda: child.keep(), 20)
    assert pauses == [0.4, 0.8, 1.6]
    until(lambda: not child.running, 20)
    assert child.exit_code == 3
    assert child.last_line() == "no use"


async def test_who_does_not_end_when_asked_is_killed(tmp_path: Path) -> None:
    child = Child("a", STUBBORN, tmp_path / "a.log")
    child.start()
    until(lambda: "here" in child.last_line(), 20)
    await child.end(patience_s=0.2)
    assert child.exit_code == -9


def test_the_next_up_ends_what_a_killed_one_left_and_nothing_else(tmp_path: Path) -> None:
    left = subprocess.Popen(STAYS, stdout=subprocess.DEVNULL)
    other = subprocess.Popen(STAYS, stdout=subprocess.DEVNULL)
    try:
        known = {
            "agent": {"pid": left.pid, "started_at": started_at_s(left.pid)},
            "reused pid": {"pid": other.pid, "started_at": 1.0},
            "gone": {"pid": 2**22 - 1, "started_at": 1.0},
            "torn": {"pid": "x"},
        }
        file = tmp_path / "up.json"
        file.write_text(json.dumps(known))
        asyncio.run(end_left_over(file))
        assert left.poll() is not None
        assert other.poll() is None
        assert not file.exists()
        asyncio.run(end_left_over(file))
    finally:
        for process in (left, other):
            process.kill()
            process.wait()


async def test_what_is_written_down_is_what_the_next_up_finds(tmp_path: Path) -> None:
    child = Child("agent", STAYS, tmp_path / "a.log")
    child.start()
    remember(tmp_path / "up.json", [child, Child("never started", STAYS, tmp_path / "b.log")])
    await end_left_over(tmp_path / "up.json")
    until(lambda: not child.running, 20)


@pytest.mark.parametrize("text", ["", "{", "[]", "7"])
async def test_a_torn_note_ends_nothing_and_stops_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / "up.json").write_text(text)
    await end_left_over(tmp_path / "up.json")
