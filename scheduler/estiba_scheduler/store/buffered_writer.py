"""Writes that wait for Redis: the newest of each name is kept while it is away, and written when it is back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from pydantic import ValidationError

from .store import Store
from .unavailable import StoreUnavailable

log = logging.getLogger(__name__)

MOST_WAITING = 4096
FIRST_RETRY_S = 0.2
LAST_RETRY_S = 2.0

Write = Callable[[], Awaitable[None]]


class BufferedWriter:
    """Never blocks its caller. `reachable`: the last write arrived. `dropped`: writes that were given up."""

    def __init__(self, store: Store, most_waiting: int = MOST_WAITING) -> None:
        self._store = store
        self._most_waiting = most_waiting
        self._waiting: dict[str, Write] = {}
        self._task: asyncio.Task[None] | None = None
        self.reachable = True
        self.dropped = 0

    def put(self, name: str, write: Write) -> None:
        """Write soon, in the order of names put first; an older write of this name that still waits is replaced."""
        if name not in self._waiting and len(self._waiting) >= self._most_waiting:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            self.dropped += 1
            log.error("more than %d writes wait for %s; %s is dropped", self._most_waiting, self._store.where, oldest)
        self._waiting[name] = write
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write_all(), name="write to the store")

    async def flush(self, within_s: float) -> bool:
        """Wait until everything is written; False when it was not within that time."""
        try:
            async with asyncio.timeout(within_s):
                while self._task is not None and not self._task.done():
                    await asyncio.shield(self._task)
        except TimeoutError:
            return False
        return True

    async def aclose(self) -> None:
        """What still waits is dropped."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})
        self.dropped += len(self._waiting)
        self._waiting.clear()

    async def _write_all(self) -> None:
        pause_s = FIRST_RETRY_S
        while self._waiting:
            name = next(iter(self._waiting))
            write = self._waiting.pop(name)
            try:
                await write()
            except StoreUnavailable as error:
                if self.reachable:
                    log.warning("%s; reports are kept until it is back", error)
                self.reachable = False
                if name not in self._waiting:  # a newer one may have come meanwhile
                    self._waiting = {name: write, **self._waiting}
                await asyncio.sleep(pause_s)
                pause_s = min(LAST_RETRY_S, pause_s * 2)
            except (ValidationError, ValueError) as error:
                self.dropped += 1
                log.error("%s can't be written and is dropped: %s", name, error)
            else:
                if not self.reachable:
                    log.info("%s is back", self._store.where)
                self.reachable, pause_s = True, FIRST_RETRY_S
