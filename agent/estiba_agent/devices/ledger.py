"""The memory of a cpu device, accounted across processes: nobody gets what is not there.

A directory with one small file per holder, written under one lock. A holder is a process (pid and start time) with a
name; what a process that is gone held is free again, with nobody having to say so.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from estiba_agent.process_start import same_start, started_at_s
from estiba_scheduler.quantities import format_bytes

from .out_of_memory import DeviceOutOfMemory

log = logging.getLogger(__name__)

ENTRY = ".held"


@dataclass(frozen=True, slots=True)
class Entry:
    """What one process holds under one name."""

    file: Path
    owner: str
    pid: int
    started_at: float
    held: int


class DeviceLedger:
    """Bytes of one device. Many processes, and many ledgers in one, may use a directory at the same time."""

    def __init__(self, directory: Path, memory_bytes: int) -> None:
        self._directory = directory
        self._memory_bytes = memory_bytes
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    @property
    def memory_bytes(self) -> int:
        return self._memory_bytes

    def account(self, owner: str, budget_bytes: int) -> DeviceAccount:
        """An account of this process, empty."""
        return DeviceAccount(self, owner, budget_bytes)

    def used_bytes(self) -> int:
        return sum(self.holders().values())

    def free_bytes(self) -> int:
        """May be negative when the device was made smaller than what is held."""
        return self._memory_bytes - self.used_bytes()

    def holders(self) -> dict[str, int]:
        """Bytes by owner, of living processes."""
        with self.locked():
            held: dict[str, int] = {}
            for entry in self._living():
                held[entry.owner] = held.get(entry.owner, 0) + entry.held
            return held

    # -- for accounts -------------------------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        handle = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def file_of(self, owner: str) -> Path:
        safe = re.sub(r"[^A-Za-z0-9._-]", "_", owner)[:80]
        return self._directory / f"{os.getpid()}-{safe}{ENTRY}"

    def others(self, own: Path, need_bytes: int) -> int:
        """Bytes that others hold. The dead are only looked for when it matters: when `need_bytes` would not fit."""
        listed = sum(entry.held for entry in self._entries() if entry.file != own)
        if listed + need_bytes <= self._memory_bytes:
            return listed
        return sum(entry.held for entry in self._living() if entry.file != own)

    # -- inner ------------------------------------------------------------------------------------------------------

    def _entries(self) -> Iterator[Entry]:
        for file in sorted(self._directory.glob(f"*{ENTRY}")):
            try:
                written = json.loads(file.read_bytes())
                entry = Entry(
                    file, str(written["owner"]), int(written["pid"]), float(written["started_at"]), int(written["held"])
                )
            except FileNotFoundError:
                continue
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.error("%s is not an entry of a ledger (%s); it is removed", file, error)
                file.unlink(missing_ok=True)
                continue
            yield entry

    def _living(self) -> Iterator[Entry]:
        for entry in self._entries():
            if _lives(entry.pid, entry.started_at):
                yield entry
            else:
                entry.file.unlink(missing_ok=True)


class DeviceAccount:
    """What one process holds under one name, never more than its budget. All figures are bytes."""

    def __init__(self, ledger: DeviceLedger, owner: str, budget_bytes: int) -> None:
        self.owner = owner
        self._ledger = ledger
        self._budget = budget_bytes
        self._held = 0
        self._peak = 0
        self._file = ledger.file_of(owner)
        self._turn = threading.RLock()
        self._started_at = started_at_s(os.getpid())
        with ledger.locked():
            self._write(0)

    @property
    def held(self) -> int:
        return self._held

    @property
    def peak(self) -> int:
        """The most that was held since the last `reset_peak`."""
        return self._peak

    @property
    def budget(self) -> int:
        return self._budget

    def reset_peak(self) -> None:
        with self._turn:
            self._peak = self._held

    def set_budget(self, budget_bytes: int) -> None:
        """Holds for what is taken from now on."""
        with self._turn:
            self._budget = budget_bytes

    def grow(self, n_bytes: int) -> None:
        """Take `n_bytes` more. Raises DeviceOutOfMemory, and takes nothing then."""
        if n_bytes < 0:
            raise ValueError(f"{n_bytes} bytes can't be taken; shrink gives back")
        with self._turn:
            wanted = self._held + n_bytes
            if wanted > self._budget:
                raise DeviceOutOfMemory(
                    f"{self.owner} holds {format_bytes(self._held)} and wants {format_bytes(n_bytes)} more: over its "
                    f"budget of {format_bytes(self._budget)}"
                )
            with self._ledger.locked():
                others = self._ledger.others(self._file, wanted)
                if others + wanted > self._ledger.memory_bytes:
                    free = max(0, self._ledger.memory_bytes - others - self._held)
                    raise DeviceOutOfMemory(
                        f"{self.owner} wants {format_bytes(n_bytes)} more, and {format_bytes(free)} of the device's "
                        f"{format_bytes(self._ledger.memory_bytes)} are free"
                    )
                self._write(wanted)
            self._held = wanted
            self._peak = max(self._peak, wanted)

    def shrink(self, n_bytes: int) -> None:
        """Give `n_bytes` back. Raises ValueError when so much isn't held."""
        with self._turn:
            if not 0 <= n_bytes <= self._held:
                raise ValueError(f"{self.owner} holds {self._held} bytes and can't give {n_bytes} back")
            with self._ledger.locked():
                self._write(self._held - n_bytes)
            self._held -= n_bytes

    def close(self) -> None:
        """Give everything back. May be called twice."""
        with self._turn:
            self._held = 0
            with self._ledger.locked():
                self._file.unlink(missing_ok=True)

    def _write(self, held: int) -> None:
        entry = {"owner": self.owner, "pid": os.getpid(), "started_at": self._started_at, "held": held}
        handle = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            text = json.dumps(entry).encode()
            os.pwrite(handle, text, 0)
            os.ftruncate(handle, len(text))
        finally:
            os.close(handle)


def _lives(pid: int, started_at: float) -> bool:
    try:
        return same_start(pid, started_at) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
