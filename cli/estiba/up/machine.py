"""`estiba up`, put together: processes, the loop, measuring, and the control socket."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import time
from collections.abc import Sequence
from typing import Any

from estiba_agent.api.bodies import CommandRefused, JobState, JobView
from estiba_agent.api.servers import server, unix_socket
from estiba_operator.api import ModelDeployment
from estiba_scheduler.control import CannotObserve, ControlLoop
from estiba_scheduler.domain import ModelSource, Snapshot
from estiba_scheduler.policies import by_name
from estiba_scheduler.store import BufferedWriter, Decision, Store, StoreUnavailable

from ..exits import CommandError, UsageError
from ..profile_cache import ProfileCache
from .agent_client import AgentClient, AgentRefused, AgentUnreachable
from .control_api import ApplyAnswer, DecisionsAnswer, DeleteAnswer, control_app
from .deployment_book import DeploymentBook, Entry
from .desk import Desk
from .measuring_first import MeasuringFirst
from .processes import AGENT_START_S, GATEWAY_START_S, Processes
from .reporter import Reporter
from .settings import UpSettings
from .status_view import JobStanding, StatusView, status_view
from .world import MachineEffects, MachineObserver

log = logging.getLogger("estiba")

TELL_S = 0.5
LAST_DECISIONS = 500


async def run_up(settings: UpSettings, documents: Sequence[ModelDeployment]) -> None:
    """Until SIGTERM or SIGINT. Raises UsageError for what was given, CommandError for what does not work."""
    try:
        settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UsageError(f"the state directory {settings.state_dir} can't be made: {error}") from error
    lock = os.open(settings.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(
                f"another `estiba up` runs on {settings.state_dir}; use `estiba apply` with it, or another --state"
            ) from None
        await Machine(settings).run(documents)
    finally:
        os.close(lock)


class Machine:
    """Answers the control socket (`UpCommands`), and runs until it is told to end."""

    def __init__(self, settings: UpSettings) -> None:
        self._settings = settings
        self._processes = Processes(settings)
        self._agent = AgentClient(self._processes.agent_config.command_socket)
        self._book = DeploymentBook(settings.deployments_file)
        self._desk = Desk(self._agent, self._book)
        self._cache = ProfileCache(settings.profile_cache, settings.node)
        self._reporter = Reporter()
        self._decisions: list[Decision] = []
        self._ending = asyncio.Event()

    # -- life -------------------------------------------------------------------------------------------------------

    async def run(self, documents: Sequence[ModelDeployment]) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        known = self._cache.seed(self._processes.agent_config.profiles_dir)
        log.info("starting on %s; %d profiles of this machine are known", self._settings.state_dir, known)
        try:
            await self._unless_ended(self._processes.start())
            self._store = Store(self._processes.redis_url)
            self._writer = BufferedWriter(self._store)
            self._observer = MachineObserver(self._agent, self._store, self._book)
            effects = MachineEffects(self._agent, self._store, self._writer, self._decided)
            self._loop = ControlLoop(self._observer, effects, by_name(self._settings.policy), time.time)
            self._measuring = MeasuringFirst(
                self._agent, self._observer, self._book, self._cache, self._settings.measure_first
            )
            await self._unless_ended(self._become_ready(documents))
            if not self._ending.is_set():
                await self._work()
        finally:
            await asyncio.shield(self._wind_up())

    def _end(self) -> None:
        if self._ending.is_set():
            log.warning("ending already; engines finish what runs")
        self._ending.set()

    async def _unless_ended(self, work: Any) -> None:
        """Do `work`, or stop doing it when the end is asked for."""
        doing = asyncio.ensure_future(work)
        ending = asyncio.ensure_future(self._ending.wait())
        await asyncio.wait([doing, ending], return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if not doing.done():
            doing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await doing

    async def _become_ready(self, documents: Sequence[ModelDeployment]) -> None:
        await self._processes.wait_for(self._processes.agent, self._agent_answers, AGENT_START_S)
        await self._processes.wait_for(self._processes.gateway, self._processes.gateway_listens, GATEWAY_START_S)
        await self._desk.read_again()
        if documents:
            try:
                await self.apply([d.model_dump(mode="json", by_alias=True, exclude_none=True) for d in documents])
            except CommandRefused as error:
                raise UsageError(error.message) from error
        await self._tell_deployments()

    async def _agent_answers(self) -> bool:
        """It answers, and its devices are read and told. Raises CommandError when there are none."""
        try:
            await self._observer.observe()
        except CannotObserve:
            return False
        if self._observer.found_none:
            wanted = ", ".join(self._settings.devices)
            raise CommandError(f"no device was found for {wanted}: {self._processes.agent.last_trouble()}")
        return bool(self._observer.devices)

    async def _work(self) -> None:
        await self._measuring.look()
        face = server(control_app(self))
        socket = unix_socket(self._settings.control_socket)
        log.info(
            "ready: OpenAI API on %s/v1 for %s; see `estiba status --state %s`",
            self._processes.gateway_url,
            ", ".join(d.name for d in self._book.deployments()) or "no models yet",
            self._settings.state_dir,
        )
        tasks = [
            asyncio.create_task(work, name=name)
            for name, work in {
                "keep processes": self._processes.keep(),
                "loop": self._loop.run(),
                "kicks": self._listen(),
                "measuring": self._measuring.run(),
                "telling": self._tell(),
                "control": face.serve(sockets=[socket]),
                "end": self._ending.wait(),
            }.items()
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            face.should_exit = True
            for task in tasks:
                if task.get_name() != "control":
                    task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._settings.control_socket.unlink(missing_ok=True)
        for task in done:
            if task.get_name() != "end" and not task.cancelled() and (error := task.exception()) is not None:
                raise CommandError(f"{task.get_name()} broke: {type(error).__name__}: {error}") from error

    async def _wind_up(self) -> None:
        log.info("ending: running requests finish, engines stop")
        await self._processes.end(self._agent.shut_down)
        if hasattr(self, "_writer"):
            await self._writer.aclose()
            await self._store.aclose()
        await self._agent.aclose()
        log.info("ended; deployments and profiles are kept in %s", self._settings.state_dir)

    # -- beside the loop --------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        async for _ in self._store.kicks():
            self._loop.kick()

    async def _tell(self) -> None:
        """The gateway reads deployments from the store; a store that lost them gets them again."""
        while True:
            self._reporter.seen(self.status())
            with contextlib.suppress(StoreUnavailable):
                told = await self._store.deployments()
                if tuple(sorted(told, key=lambda d: d.id)) != self._book.deployments():
                    await self._store.put_deployments(self._book.deployments())
            await asyncio.sleep(TELL_S)

    async def _tell_deployments(self) -> None:
        try:
            await self._store.put_deployments(self._book.deployments())
        except StoreUnavailable as error:
            log.warning("%s; the gateway learns of the deployments when it is back", error)

    def _decided(self, decision: Decision) -> None:
        self._decisions = [*self._decisions[-LAST_DECISIONS:], decision]
        self._reporter.decided(decision)

    # -- UpCommands -------------------------------------------------------------------------------------------------

    def status(self) -> StatusView:
        job = self._measuring.job
        problems = list(self._loop.problems)
        problems += [f"{d.id}: {d.problem}" for d in self._book.deployments() if d.problem]
        problems += [
            f"the {child.name} is not running: {child.last_line()}"
            for child in (self._processes.agent, self._processes.gateway)
            if not child.running
        ]
        return status_view(
            self._loop.snapshot,
            self._loop.plan,
            at=time.time(),
            policy=self._settings.policy,
            jobs=() if job is None else (_standing(job),),
            gateway_url=self._processes.gateway_url,
            problems=tuple(problems),
        )

    def snapshot(self) -> Snapshot:
        return self._loop.snapshot

    async def decisions(self, deployment: str | None, limit: int) -> DecisionsAnswer:
        wanted = self._named(deployment).deployment.id if deployment else None
        try:
            return DecisionsAnswer(decisions=tuple(await self._store.decisions(wanted, limit)))
        except StoreUnavailable as error:
            kept = [d for d in self._decisions if wanted in (None, d.deployment)]
            problem = f"{error}; these are the decisions since this `up` started"
            return DecisionsAnswer(decisions=tuple(kept[-limit:]), problems=(problem,))

    async def apply(self, documents: list[dict[str, Any]]) -> ApplyAnswer:
        results = await self._desk.apply(documents)
        await self._changed()
        for result in results:
            log.info("%s %s", result.name, result.result)
        return ApplyAnswer(results=tuple(results))

    async def delete(self, names: list[str]) -> DeleteAnswer:
        deleted = await self._desk.delete(names)
        await self._changed()
        return DeleteAnswer(deleted=tuple(deleted))

    def model(self, name: str) -> ModelSource:
        return self._named(name).deployment.model

    async def measure(self, name: str, quick: bool) -> str:
        entry = self._named(name)
        devices = self._observer.devices
        if not devices:
            raise CommandRefused(503, "NoDevice", "no device is known yet; try again in a moment")
        try:
            return await self._agent.start_profile(entry.deployment.id, entry.deployment.model, devices[0].uuid, quick)
        except (AgentRefused, AgentUnreachable) as error:
            raise _refusal(error) from error

    async def measuring(self, job: str) -> JobView:
        try:
            view = await self._agent.job(job)
        except (AgentRefused, AgentUnreachable) as error:
            raise _refusal(error) from error
        if view.state is JobState.DONE and view.profile is not None:
            self._observer.learn(view.profile)
            self._cache.keep(view.profile)
        return view

    async def stop_measuring(self, job: str) -> JobView:
        try:
            return await self._agent.cancel_job(job)
        except (AgentRefused, AgentUnreachable) as error:
            raise _refusal(error) from error

    # -- inner ------------------------------------------------------------------------------------------------------

    async def _changed(self) -> None:
        await self._tell_deployments()
        await self._measuring.look()
        self._loop.kick()

    def _named(self, name: str) -> Entry:
        entry = self._book.get(name)
        if entry is None:
            known = ", ".join(d.id.removeprefix("default/") for d in self._book.deployments()) or "none"
            raise CommandRefused(404, "NotFound", f"{name} is not served here; there are: {known}")
        return entry


def _standing(job: JobView) -> JobStanding:
    return JobStanding(
        deployment=job.deployment,
        device=job.device,
        state=job.state.value,
        done=job.done,
        total=job.total,
        note=job.note,
        error=job.error,
    )


def _refusal(error: AgentRefused | AgentUnreachable) -> CommandRefused:
    if isinstance(error, AgentRefused):
        return CommandRefused(error.status, error.reason, error.message)
    return CommandRefused(503, "AgentUnreachable", str(error))
