"""Tells the store what is asked for: at once when requests begin to wait, and again every second or so."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from estiba_scheduler.store import Store, StoreUnavailable

from .demand_meter import DemandMeter
from .metrics import GatewayMetrics
from .switchboard import Switchboard

log = logging.getLogger(__name__)

AGAIN_S = 0.2
"""Pause before a kick that failed is tried again."""


class DemandReport:
    def __init__(
        self,
        store: Store,
        source: str,
        *,
        every_s: float,
        ttl_s: float,
        meter: DemandMeter,
        metrics: GatewayMetrics,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._source = source
        self._every_s = every_s
        self._ttl_s = ttl_s
        self._meter = meter
        self._metrics = metrics
        self._clock = clock
        self._urgent: set[str] = set()
        self._now = asyncio.Event()

    def begins_to_wait(self, deployment: str) -> None:
        """A line of requests has begun: its demand is told now, and the control loop is woken, once."""
        self._urgent.add(deployment)
        self._now.set()

    async def run(self, board: Switchboard) -> None:
        """Until cancelled."""
        due_at = self._clock()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, due_at - self._clock())):
                    await self._now.wait()
            self._now.clear()
            urgent, self._urgent = self._urgent, set()
            try:
                if urgent:
                    await self._tell(board, urgent)
                    await self._store.kick()
                    self._metrics.kicked()
                if self._clock() >= due_at:
                    due_at = self._clock() + self._every_s
                    await self._tell(board, set(board.table.deployments) if board.table else set())
            except StoreUnavailable as error:
                log.debug("demand could not be told: %s", error)
                self._urgent |= urgent
                await asyncio.sleep(AGAIN_S)

    async def last_words(self, board: Switchboard) -> None:
        """On the way out: nothing waits here any more."""
        with contextlib.suppress(StoreUnavailable):
            await self._tell(board, set(board.table.deployments) if board.table else set())

    async def _tell(self, board: Switchboard, deployments: set[str]) -> None:
        for deployment in sorted(deployments):
            now = self._clock()
            queued, in_flight = board.held(deployment), board.in_flight(deployment)
            if not queued and not in_flight and not self._meter.worth_telling(deployment, now):
                continue
            demand = self._meter.demand(deployment, queued, board.oldest_queued_at(deployment), in_flight, now)
            await self._store.put_demand(self._source, demand, self._ttl_s)
