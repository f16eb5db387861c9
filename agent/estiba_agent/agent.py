"""One node's agent, put together: devices, supervision, profiling jobs, reports, and its two APIs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from estiba_agent.devices import DeviceProvider
from estiba_scheduler.domain import InstanceSpec, InstanceStatus, ModelProfile, Node, Reason
from estiba_scheduler.store import BufferedWriter, Store

from .api.bodies import (
    CommandRefused,
    FactsAnswer,
    FactsRequest,
    InstanceView,
    JobStarted,
    JobView,
    NodeView,
    ProfileRequest,
)
from .api.commands import command_app
from .api.metrics import metrics_app
from .api.servers import loopback_socket, server, unix_socket
from .config import AgentConfig
from .jobs import ProfileJobs
from .jobs.job_engine import end_left_over
from .model_facts import ModelFactsDesk
from .node_report import NodeHardware, node_of
from .profile_copies import ProfileCopies
from .reporting import Reporting
from .supervisor.course import Patience
from .supervisor.process import write_atomically
from .supervisor.supervisor import SpecRefused, Supervisor

log = logging.getLogger(__name__)

STATUS_OF = {Reason.STALE_GENERATION: 409, Reason.INVALID: 422}
LAST_REPORTS_S = 3.0
"""How long the last reports may take on the way out; a store that is away gets none."""


def steady_clock() -> float:
    """Seconds since the epoch that never jump: read once, then counted."""
    return _EPOCH + time.monotonic()


_EPOCH = time.time() - time.monotonic()


class Agent:
    """Answers both APIs (`Commands` and `Facts`), and runs until it is told to end."""

    def __init__(self, config: AgentConfig, providers: Sequence[DeviceProvider]) -> None:
        self._config = config
        self._hardware = NodeHardware(config, providers)
        self._copies = ProfileCopies(config.profiles_dir)
        self._store = Store(config.redis_url)
        self._writer = BufferedWriter(self._store)
        self._reporting = Reporting(
            self._store, self._writer, config.node, config.heartbeat_ttl_s, self._copies, self._statuses
        )
        self._supervisor = Supervisor(
            config.node,
            config.instances_dir,
            config.model_cache,
            self._hardware,
            self._reporting,
            steady_clock,
            poll_s=config.poll_s,
            look_s=config.heartbeat_s,
            patience=Patience(unresponsive_s=config.unresponsive_s, memory_back_s=config.memory_back_s),
        )
        self._facts = ModelFactsDesk(config.model_cache)
        self._jobs = ProfileJobs(
            config.node,
            config.job_dir,
            config.model_cache,
            self._hardware,
            self._supervisor,
            self._facts,
            self._reporting.profile,
        )
        self._url: str | None = None
        self._taken_over = False
        self._ending = asyncio.Event()
        self._hurry = asyncio.Event()
        self._stop_engines = config.stop_engines_on_exit

    # -- life -------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Soon; asked a second time, at once. Engines live on, unless it was configured or asked otherwise."""
        if self._ending.is_set():
            self._hurry.set()
        self._ending.set()

    async def run(self) -> None:
        """Until `end`. Raises OSError when a socket can't be had."""
        config = self._config
        config.port_file.unlink(missing_ok=True)  # of an agent that was killed
        config.jobs_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        await asyncio.to_thread(end_left_over, config.jobs_dir)
        tcp = loopback_socket(config.api_host, config.api_port)
        host, port = tcp.getsockname()[:2]
        self._url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        await self._supervisor.take_over()
        self._taken_over = True
        faces = [
            (server(command_app(self)), unix_socket(config.command_socket)),
            (server(metrics_app(self)), tcp),
        ]
        serving = [asyncio.create_task(face.serve(sockets=[socket])) for face, socket in faces]
        write_atomically(config.port_file, f"{port}\n")
        log.info("agent of %s: commands on %s, metrics on %s", config.node, config.command_socket, self._url)
        work = asyncio.create_task(self._work(), name="work")
        ending = asyncio.create_task(self._ending.wait(), name="ending")
        try:
            await asyncio.wait([work, ending, *serving], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await self._wind_up_unless_hurried()
        finally:
            ending.cancel()
            work.cancel()
            for face, _ in faces:
                face.should_exit = True
            results = await asyncio.gather(work, *serving, return_exceptions=True)
            config.command_socket.unlink(missing_ok=True)
            config.port_file.unlink(missing_ok=True)
            await self._store.aclose()
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._supervisor.run(), name="supervisor")
            group.create_task(self._reporting.run(self.node, self._config.heartbeat_s), name="reporting")

    async def _wind_up_unless_hurried(self) -> None:
        winding_up = asyncio.create_task(self._wind_up(), name="wind up")
        hurry = asyncio.create_task(self._hurry.wait(), name="hurry")
        await asyncio.wait([winding_up, hurry], return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not winding_up.done():
            log.warning("told to end at once: engines that still run are left to the next agent")
            winding_up.cancel()
        await asyncio.gather(winding_up, return_exceptions=True)

    async def _wind_up(self) -> None:
        await self._jobs.cancel_all()
        if self._stop_engines:
            log.info("draining and stopping all engines")
            await self._supervisor.shut_down()
        await self._reporting.last_words(LAST_REPORTS_S)

    # -- Commands ---------------------------------------------------------------------------------------------------

    async def want(self, spec: InstanceSpec) -> InstanceStatus:
        if self._ending.is_set():
            raise CommandRefused(503, "Stopping", "the agent is ending")
        try:
            return self._supervisor.want(spec)
        except SpecRefused as refused:
            raise CommandRefused(STATUS_OF.get(refused.reason, 422), refused.reason, refused.message) from refused

    async def forget(self, instance: str) -> None:
        try:
            self._supervisor.forget(instance)
        except KeyError:
            raise _unknown(instance) from None
        except SpecRefused as refused:
            raise CommandRefused(409, "StillThere", refused.message) from refused

    def story(self, instance: str) -> list[str]:
        try:
            return self._supervisor.story(instance)
        except KeyError:
            raise _unknown(instance) from None

    async def model_facts(self, request: FactsRequest) -> FactsAnswer:
        return await self._facts.answer(request)

    async def profile(self, request: ProfileRequest) -> JobStarted:
        return JobStarted(job=await self._jobs.start(request))

    def job(self, job: str) -> JobView:
        return self._jobs.view(job)

    async def cancel(self, job: str) -> JobView:
        return await self._jobs.cancel(job)

    def shut_down(self) -> None:
        self._stop_engines = True
        self._ending.set()

    # -- Facts ------------------------------------------------------------------------------------------------------

    def node(self) -> Node | None:
        reading = self._hardware.reading
        if reading is None or not self._taken_over:
            return None
        return node_of(self._config, reading, self._supervisor.leaks(), self._url, steady_clock())

    def instances(self) -> list[InstanceView]:
        return [InstanceView(spec=spec, status=status) for spec, status in self._supervisor.instances()]

    async def observed(self) -> NodeView:
        views = tuple(self.instances())
        await self._supervisor.look_again()
        return NodeView(node=self.node(), instances=views)

    def profiles(self) -> list[ModelProfile]:
        return self._copies.all()

    def jobs(self) -> list[JobView]:
        return self._jobs.all()

    @property
    def store_reachable(self) -> bool:
        return self._writer.reachable

    @property
    def store_dropped(self) -> int:
        return self._writer.dropped

    def pulse_age_s(self) -> float:
        return self._supervisor.pulse_age_s()

    def _statuses(self) -> list[InstanceStatus]:
        return [status for _, status in self._supervisor.instances()]


def _unknown(instance: str) -> CommandRefused:
    return CommandRefused(404, "NoSuchInstance", f"instance {instance[:80]} is not known here")
