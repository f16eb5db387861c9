from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from estiba_agent.process_start import age_s, same_start, started_at_s


def test_a_start_is_told_from_the_boot_on_and_not_by_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    started = started_at_s(os.getpid())
    assert started == pytest.approx(psutil.Process().create_time() - psutil.boot_time(), abs=0.05)
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: 1.0)  # as after setting the clock
    assert started_at_s(os.getpid()) == started
    assert same_start(os.getpid(), started)


def test_another_process_with_the_same_pid_is_another() -> None:
    assert not same_start(os.getpid(), started_at_s(os.getpid()) - 1)


def test_a_process_that_is_gone_is_nobody() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input('('); print(')')"], stdin=subprocess.PIPE)
    started = started_at_s(child.pid)
    assert same_start(child.pid, started)
    assert 0 <= age_s(child.pid) < age_s(os.getpid())
    child.kill()
    child.wait()
    assert not same_start(child.pid, started)
    with pytest.raises(psutil.NoSuchProcess):
        started_at_s(child.pid)
