"""How much host memory there is for sleeping and offloaded weights."""

from __future__ import annotations

from pathlib import Path

import psutil

DEFAULT_SHARE = 0.5
"""Of the memory that the machine (or its cgroup) has, when nothing is configured."""

CGROUP = Path("/sys/fs/cgroup")


def host_budget_bytes(configured: int | None, cgroup: Path = CGROUP) -> int:
    if configured is not None:
        return configured
    limit = _number(cgroup / "memory.max")
    total = psutil.virtual_memory().total
    return int(DEFAULT_SHARE * (min(limit, total) if limit else total))


def host_free_bytes(cgroup: Path = CGROUP) -> int:
    """What can still be had: of the machine, and of the cgroup where it is limited."""
    available = psutil.virtual_memory().available
    limit, used = _number(cgroup / "memory.max"), _number(cgroup / "memory.current")
    if limit is None or used is None:
        return int(available)
    return int(min(available, max(0, limit - used)))


def _number(file: Path) -> int | None:
    """None for `max`, and where there is no such file (no cgroup v2)."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
