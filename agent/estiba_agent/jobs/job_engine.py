"""An engine of a profiling job: outside supervision, under the device's budget, and gone when the job is."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from estiba_agent.engines.control_client import EngineControl, EngineError
from estiba_agent.engines.wire import EnginePhase
from estiba_agent.supervisor import process
from estiba_agent.supervisor.diagnosis import of_exit, of_words
from estiba_agent.supervisor.launch import control_socket_in, launch_of, log_file_in
from estiba_agent.supervisor.process import ENGINE_COMMAND, EngineProcess
from estiba_agent.supervisor.supervisor import Supervisor
from estiba_scheduler.domain import InstanceSpec

from ..supervisor.hardware import Hardware

log = logging.getLogger(__name__)

START_DEADLINE_S = 600.0
STOP_PATIENCE_S = 10.0
POLL_S = 0.05
ENGINE_DIR = "e"
"""Below a job's directory."""


class JobEngineFailed(Exception):
    """The engine of a job did not come up, or went away; `reason` is a Reason constant."""

    def __init__(self, reason: str, message: str, log_tail: tuple[str, ...]) -> None:
        super().__init__(f"{reason}: {message}" + (f" (last line: {log_tail[-1]})" if log_tail else ""))
        self.reason = reason
        self.message = message
        self.log_tail = log_tail


class JobEngine:
    """A running engine. `started_s`: seconds from the start of its process to its first Ready."""

    def __init__(
        self, running: EngineProcess, control: EngineControl, directory: Path, room: AsyncExitStack | None = None
    ) -> None:
        self.control = control
        self.started_s = 0.0
        self._process = running
        self._log_file = log_file_in(directory)
        self._room = room or AsyncExitStack()
        self._stopped = False

    async def stop(self) -> None:
        """Ask it to stop, kill it when it does not, and give its room back. May be called twice."""
        if self._stopped:
            return
        self._stopped = True
        try:
            async with asyncio.timeout(STOP_PATIENCE_S):
                await self._ask_to_stop()
        except (EngineError, TimeoutError) as error:
            log.warning("engine process %d is killed: %s", self._process.pid, error or "it did not stop in time")
            self._process.kill_group()
            async with asyncio.timeout(STOP_PATIENCE_S):
                await self._gone()
        finally:
            await self.control.aclose()
            await self._room.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.shield(self.stop())

    async def until_ready(self, began: float) -> None:
        """Raises JobEngineFailed."""
        while True:
            if (exited := self._process.exited()) is not None:
                tail = process.log_tail(self._log_file)
                raise JobEngineFailed(*of_exit(exited.code, tail), tail)
            try:
                state = await self.control.state()
            except EngineError:
                state = None
            if state is not None and state.phase is EnginePhase.READY:
                self.started_s = state.load_s or time.monotonic() - began
                return
            if state is not None and state.phase is EnginePhase.FAILED:
                raise JobEngineFailed(*of_words(state.error_reason, state.error), process.log_tail(self._log_file))
            await asyncio.sleep(POLL_S)

    async def _ask_to_stop(self) -> None:
        if self._process.exited() is None:
            await self.control.stop()
        await self._gone()

    async def _gone(self) -> None:
        while self._process.exited() is None:  # noqa: ASYNC110 - the kernel tells no event of a process that isn't ours
            await asyncio.sleep(POLL_S)


async def start_job_engine(
    spec: InstanceSpec,
    supervisor: Supervisor,
    hardware: Hardware,
    directory: Path,
    model_cache: Path,
    command: Sequence[str] = ENGINE_COMMAND,
) -> JobEngine:
    """Start an engine in `directory` and wait until it is ready.

    Raises NoRoom, JobEngineFailed, or TimeoutError after the spec's start deadline.
    """
    stack = AsyncExitStack()
    loaded: Callable[[], None] = await stack.enter_async_context(
        supervisor.guest(spec.id, spec.device, spec.budget_bytes)
    )
    try:
        launch = launch_of(spec, hardware.place(spec.device), directory, model_cache)
        began = time.monotonic()
        running = process.start(launch, directory, command)
    except BaseException:
        await stack.aclose()
        raise
    engine = JobEngine(running, EngineControl(control_socket_in(directory), running.identity), directory, stack)
    try:
        async with asyncio.timeout(spec.start_deadline_s):
            await engine.until_ready(began)
    except BaseException:
        await asyncio.shield(engine.stop())
        raise
    loaded()
    return engine


def end_left_over(jobs_dir: Path, command: Sequence[str] = ENGINE_COMMAND) -> None:
    """Engines of jobs whose agent was killed: nobody will ever use them, and they hold memory."""
    for launch_file in sorted(jobs_dir.glob(f"*/{ENGINE_DIR}/launch.json")):
        left = process.find_started_with(launch_file, command)
        if left is not None:
            log.warning("ending engine process %d that a profiling job left over", left.pid)
            left.kill_group()
        launch_file.unlink(missing_ok=True)
