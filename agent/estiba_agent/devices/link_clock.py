"""A host link with a rate: whoever copies over it waits until the link would have done it. FIFO across processes.

Stands in for a slow PCIe on the cpu device, whose copies are otherwise as fast as memory.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
from pathlib import Path

LONGEST_QUEUE_S = 600.0
"""A link that is said to be busy for longer than that has a stamp of another boot."""
SPIN_S = 0.0002
GAP_S = 0.005
"""Whoever comes back within that time of its last transfer goes on where that ended: in between it copied the bytes,
and that is the transfer. Without this every chunk would take its time twice, on the link and in the copy."""
STAMP = struct.Struct("<d")


class HostLinkClock:
    """`bytes_per_s` None: the link has no rate of its own, nobody waits. Thread-safe."""

    def __init__(self, file: Path | None, bytes_per_s: float | None) -> None:
        if bytes_per_s is not None and bytes_per_s <= 0:
            raise ValueError(f"a link of {bytes_per_s} bytes/s moves nothing")
        if bytes_per_s is not None and file is None:
            raise ValueError("a link with a rate needs the file that its users share")
        self._file = file
        self._bytes_per_s = bytes_per_s
        self._turn = threading.Lock()
        self._ended = 0.0
        if file is not None and bytes_per_s is not None:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)

    @property
    def bytes_per_s(self) -> float | None:
        return self._bytes_per_s

    def acquire(self, n_bytes: int) -> None:
        """Returns when the link has had the time for `n_bytes`, after everything that was asked for earlier."""
        if self._bytes_per_s is None or n_bytes <= 0:
            return
        with self._turn:
            end = self._reserve(n_bytes / self._bytes_per_s)
        _sleep_until(end)

    def _reserve(self, seconds: float) -> float:
        """The end of our slot, on the monotonic clock that all processes of a boot share."""
        assert self._file is not None
        handle = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            stamp = os.pread(handle, STAMP.size, 0)
            now = time.monotonic()
            busy_until = STAMP.unpack(stamp)[0] if len(stamp) == STAMP.size else 0.0
            nobody_since = busy_until == self._ended and now - busy_until < GAP_S
            if not nobody_since and not now < busy_until < now + LONGEST_QUEUE_S:
                busy_until = now
            self._ended = end = busy_until + seconds
            os.pwrite(handle, STAMP.pack(end), 0)
            return end
        finally:
            os.close(handle)


def _sleep_until(end: float) -> None:
    while (left := end - time.monotonic()) > 0:
        if left > SPIN_S:
            time.sleep(left - SPIN_S)
