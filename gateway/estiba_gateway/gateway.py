"""The gateway, put together: the table, the switchboard, the demand report and the HTTP face."""

from __future__ import annotations

import asyncio
import logging
import time

from estiba_scheduler.quantities import format_seconds
from estiba_scheduler.store import Store, StoreUnavailable

from .api import GatewayApi
from .config import GatewayConfig
from .demand_meter import DemandMeter
from .demand_report import DemandReport
from .engine_call import client
from .generation import Generation
from .listening import allow_files, listening_socket, server, write_port
from .metrics import GatewayMetrics
from .route_table import RouteTable
from .switchboard import Switchboard
from .table_watch import TableWatch

log = logging.getLogger(__name__)

EXPLAIN_S = 0.5
"""A client that was held in vain waits so long more to be told why."""
LAST_REPORT_S = 1.0
LAST_BYTES_S = 2.0
OTHER_FILES = 64


def steady_clock() -> float:
    """Seconds since the epoch that never jump: read once, then counted."""
    return _EPOCH + time.monotonic()


_EPOCH = time.time() - time.monotonic()


class Gateway:
    """Runs until it is told to end. To be made within the event loop."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._store = Store(config.redis_url)
        self._http = client(config.engine_silence_s)
        self._meter = DemandMeter()
        self._metrics = GatewayMetrics()
        self._report = DemandReport(
            self._store,
            config.source,
            every_s=config.demand_every_s,
            ttl_s=config.demand_ttl_s,
            meter=self._meter,
            metrics=self._metrics,
            clock=steady_clock,
        )
        self._board = Switchboard(
            hold_s=config.hold_s,
            max_held=config.max_held,
            max_held_bytes=config.max_held_bytes,
            max_requests=config.max_requests,
            clock=steady_clock,
            on_hold=self._report.begins_to_wait,
        )
        self._watch = TableWatch(self._store, config.poll_s, steady_clock, self._see, self._board.release)
        self._cut = asyncio.Event()
        self._ending = asyncio.Event()
        generation = Generation(
            self._board,
            self._meter,
            self._metrics,
            self._http,
            max_body_bytes=config.max_body_bytes,
            client_stall_s=config.client_stall_s,
            cut=self._cut,
            explain=self._explain,
            on_wrong_engine=self._watch.refresh,
            look_again=self._watch.look_again,
            clock=steady_clock,
        )
        self._api = GatewayApi(self._board, self._watch, self._metrics, generation, steady_clock)

    def end(self) -> None:
        """Held requests are told to try again, running ones may finish; asked a second time, nothing may."""
        if self._ending.is_set():
            self._cut.set()
        self._ending.set()

    async def run(self) -> None:
        """Until `end`. Raises OSError when the address can't be had."""
        config = self._config
        config.port_file.unlink(missing_ok=True)  # of a gateway that was killed
        needed = 2 * config.max_requests + OTHER_FILES
        if (allowed := allow_files(needed)) < needed:
            log.warning(
                "%d open files are allowed, %d may be needed for %d requests", allowed, needed, config.max_requests
            )
        listener = listening_socket(config.host, config.port)
        port = listener.getsockname()[1]
        face = server(self._api.app(), config.finish_s + LAST_BYTES_S)
        serving = asyncio.create_task(face.serve(sockets=[listener]), name="serve")
        work = asyncio.create_task(self._work(), name="work")
        ending = asyncio.create_task(self._ending.wait(), name="ending")
        write_port(config.port_file, port)
        log.info("gateway on http://%s:%d", config.host, port)
        try:
            await asyncio.wait([serving, work, ending], return_when=asyncio.FIRST_COMPLETED)
        finally:
            config.port_file.unlink(missing_ok=True)
            self._board.close()
            face.should_exit = True
            cutting = asyncio.create_task(self._cut_after(config.finish_s), name="cut")
            await asyncio.gather(serving, return_exceptions=True)
            for task in (cutting, ending, work):
                task.cancel()
            results = await asyncio.gather(serving, work, cutting, return_exceptions=True)
            await self._part()
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch.run(), name="watch")
            group.create_task(self._report.run(self._board), name="report")

    async def _cut_after(self, finish_s: float) -> None:
        await asyncio.sleep(finish_s)
        self._cut.set()

    async def _part(self) -> None:
        try:
            async with asyncio.timeout(LAST_REPORT_S):
                await self._report.last_words(self._board)
        except TimeoutError:
            log.warning("the store did not take the last report")
        await self._http.aclose()
        await self._store.aclose()

    def _see(self, table: RouteTable) -> None:
        self._metrics.keep_only(table.deployments)
        self._meter.keep_only(set(table.deployments))
        self._board.see(table)

    async def _explain(self, deployment: str) -> str:
        try:
            async with asyncio.timeout(EXPLAIN_S):
                decisions = await self._store.decisions(deployment, limit=1)
        except (StoreUnavailable, TimeoutError):
            return "the store is away, so nothing is known of why"
        if not decisions:
            return ""
        last = decisions[-1]
        return f"{last.reason}: {last.message} (decided {format_seconds(max(0.0, steady_clock() - last.at))} ago)"
