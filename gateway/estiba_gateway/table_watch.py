"""Keeps the route table up to date with the store. With the store away the last table stays."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from estiba_scheduler.store import Store, StoreUnavailable

from .loss_guard import LossGuard
from .route_table import RouteTable

log = logging.getLogger(__name__)

LEAST_GAP_S = 0.05
"""Between two readings, however often somebody asks for one."""
LOOK_AGAIN_S = 1.0


class TableWatch:
    """`see` gets every table that was read, `tick` is called every period whether the store answers or not."""

    def __init__(
        self,
        store: Store,
        every_s: float,
        clock: Callable[[], float],
        see: Callable[[RouteTable], None],
        tick: Callable[[], None],
    ) -> None:
        self._store = store
        self._every_s = every_s
        self._clock = clock
        self._see = see
        self._tick = tick
        self._guard = LossGuard()
        self._now = asyncio.Event()
        self._waiting: list[asyncio.Future[bool]] = []
        self.read_at: float | None = None
        self.reachable = False
        self.pulse_at = clock()

    def refresh(self) -> None:
        """Read the store now instead of at the next period."""
        self._now.set()

    async def look_again(self) -> bool:
        """Wait for a table whose reading begins after this call. False: the store did not answer in time."""
        read: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(read)
        self.refresh()
        try:
            async with asyncio.timeout(LOOK_AGAIN_S):
                return await read
        except TimeoutError:
            return False

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._poll(), name="poll the store")
            group.create_task(self._listen(), name="listen for kicks")
            group.create_task(self._beat(), name="beat")

    async def _poll(self) -> None:
        while True:
            self._now.clear()
            waiting, self._waiting = self._waiting, []
            try:
                await self._read()
            except StoreUnavailable as error:
                if self.reachable or self.read_at is None:
                    log.warning("the last known table stays in force: %s", error)
                self.reachable = False
            for read in waiting:
                if not read.done():
                    read.set_result(self.reachable)
            await asyncio.sleep(LEAST_GAP_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._now.wait()

    async def _read(self) -> None:
        deployments, instances = await asyncio.gather(self._store.deployments(), self._store.instances())
        now = self._clock()
        if not self.reachable:
            log.info("the store at %s is there", self._store.where)
        self.reachable, self.read_at = True, now
        self._see(RouteTable.of(self._guard.believe(deployments, now), instances))

    async def _listen(self) -> None:
        async for _ in self._store.kicks():
            self.refresh()

    async def _beat(self) -> None:
        while True:
            self.pulse_at = self._clock()
            self._tick()
            await asyncio.sleep(self._every_s)
