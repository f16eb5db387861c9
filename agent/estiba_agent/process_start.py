"""When a process was started, told so that it can be compared later: setting the wall clock doesn't change it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil

SAME_S = 0.02
"""The kernel counts in hundredths of a second."""
START_TIME_FIELD = 19
"""Of /proc/<pid>/stat, counted from behind the command's name (field 22 of proc(5))."""


def started_at_s(pid: int) -> float:
    """Seconds from the boot to its start; seconds since the epoch where there is no /proc.

    psutil adds the time of the boot, which moves whenever the clock is set: a machine that slept, or whose clock was
    corrected, would then seem to have none of its processes any more. Raises psutil.NoSuchProcess.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self/stat").exists():
            raise psutil.NoSuchProcess(pid) from None
        return psutil.Process(pid).create_time()
    fields = stat[stat.rindex(b")") + 2 :].split()
    return float(fields[START_TIME_FIELD]) / os.sysconf("SC_CLK_TCK")


def same_start(pid: int, started_at: float) -> bool:
    """Whether `pid` is the process that was started then, and not one that has its pid by now."""
    try:
        return abs(started_at_s(pid) - started_at) < SAME_S
    except psutil.NoSuchProcess:
        return False


def age_s(pid: int) -> float:
    """Seconds since its start. Raises psutil.NoSuchProcess."""
    if Path("/proc/self/stat").exists():
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started_at_s(pid)
    return time.time() - started_at_s(pid)
