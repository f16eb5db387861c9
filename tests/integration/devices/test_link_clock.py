"""A link that several processes share. Its time is real time, so bounds are lower bounds: a link is never too fast."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from estiba_agent.devices import HostLinkClock
from tests.builders import MIB

COPIER = """
import sys, time
from pathlib import Path
from estiba_agent.devices import HostLinkClock
clock = HostLinkClock(Path(sys.argv[1]), float(sys.argv[2]))
print("ready", flush=True)
sys.stdin.readline()
began = time.monotonic()
for _ in range(10):
    clock.acquire(int(sys.argv[3]))
print(began, time.monotonic(), flush=True)
"""
RATE = 100 * MIB


def test_a_copy_takes_what_the_link_would_take(tmp_path: Path) -> None:
    clock = HostLinkClock(tmp_path / "link", RATE)
    began = time.monotonic()
    for _ in range(5):
        clock.acquire(MIB)
    assert time.monotonic() - began >= 5 / 100


def test_two_processes_share_the_rate(tmp_path: Path) -> None:
    copiers = [
        subprocess.Popen(
            [sys.executable, "-c", COPIER, str(tmp_path / "link"), str(RATE), str(MIB)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for copier in copiers:
        assert copier.stdout is not None
        assert copier.stdout.readline() == "ready\n"
    for copier in copiers:
        assert copier.stdin is not None
        copier.stdin.write("\n")
        copier.stdin.flush()
    times = [[float(word) for word in copier.communicate()[0].split()] for copier in copiers]
    first = min(began for began, _ in times)
    last = max(ended for _, ended in times)
    assert last - first >= 0.99 * 20 / 100, "20 MiB over 100 MiB/s, whoever sent them"


def test_a_link_without_a_rate_holds_nobody_up(tmp_path: Path) -> None:
    clock = HostLinkClock(None, None)
    clock.acquire(10**15)
    assert clock.bytes_per_s is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("stamp", [b"", b"torn", struct.pack("<d", 1e12), struct.pack("<d", -5.0)])
def test_a_stamp_of_another_boot_or_a_torn_one_does_not_hold_the_link_for_ever(tmp_path: Path, stamp: bytes) -> None:
    (tmp_path / "link").write_bytes(stamp)
    began = time.monotonic()
    HostLinkClock(tmp_path / "link", RATE).acquire(MIB)
    assert time.monotonic() - began < 60, "the queue that the stamp tells of is years long"


@pytest.mark.parametrize("rate", [0.0, -1.0])
def test_a_link_that_moves_nothing_is_refused(tmp_path: Path, rate: float) -> None:
    with pytest.raises(ValueError, match="moves nothing"):
        HostLinkClock(tmp_path / "link", rate)
