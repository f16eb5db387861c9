"""Running a profiling job and showing its progress: on the agent of a running `up`, or on one started for it alone."""

from __future__ import annotations

import asyncio
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from pydantic import Field
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from estiba_agent.api.bodies import JobState, JobView
from estiba_agent.config import AgentConfig
from estiba_agent.profiling import Validation
from estiba_scheduler.domain import Device, ModelProfile, ModelSource, Node, Value

from .exits import CommandError, UsageError
from .profile_cache import ProfileCache
from .up.agent_client import AgentClient, AgentRefused, AgentUnreachable
from .up.children import Child
from .up_client import UpClient

AGENT_START_S = 60.0
LONGEST_S = 3600.0
POLL_S = 0.2
LONG_S = 900.0
"""A model may be converted, or made, before it is measured."""


class Measured(Value):
    profile: ModelProfile
    device: Device | None = None
    validation: tuple[Validation, ...] = Field(default=(), description="predictions at residencies not used in the fit")
    lacks: tuple[str, ...] = Field(default=(), description="what was not measured, and why")


def measure_in_up(up: UpClient, name: str, quick: bool, console: Console) -> Measured:
    """Raises CommandError when it fails. Interrupted, it cancels the job; what was measured is kept."""
    job = up.post("/v1/profile", {"name": name, "quick": quick}, timeout_s=LONG_S)["job"]
    over = False
    try:
        with _progress(console, name) as tell:
            end = time.monotonic() + LONGEST_S
            while True:
                view = JobView.model_validate(up.get(f"/v1/profile/{job}"))
                tell(view)
                if view.state is not JobState.RUNNING:
                    over = True
                    return _outcome(view)
                if time.monotonic() > end:
                    raise CommandError(f"measuring {name} was not done after {LONGEST_S:g} s")
                time.sleep(POLL_S)
    finally:
        if not over:
            up.delete(f"/v1/profile/{job}")


async def measure_alone(source: ModelSource, device: str, quick: bool, cache: Path, console: Console) -> Measured:
    """On an agent of its own, which ends with it. What was measured so far is kept in the cache, and gone on from."""
    state = Path(tempfile.mkdtemp(prefix="estiba-"))
    try:
        jobs = cache / "jobs"
        jobs.mkdir(parents=True, exist_ok=True)
        (state / "jobs").symlink_to(jobs)
        config = AgentConfig(
            node=platform.node() or "localhost",
            state_dir=state,
            redis_url=f"unix://{state}/none.sock",  # nobody listens there: what is measured is handed over here
            devices=[device],
            model_cache=cache / "models",
            stop_engines_on_exit=True,
        )
        file = state / "agent.json"
        file.write_text(config.model_dump_json())
        agent = Child("agent", [sys.executable, "-m", "estiba_agent", str(file)], state / "agent.log")
        client = AgentClient(config.command_socket)
        agent.start()
        try:
            measured = await _measure_on(agent, client, config, source, quick, console)
        except AgentRefused as error:
            raise UsageError(error.message) from error
        except AgentUnreachable as error:
            raise CommandError(f"{error} ({agent.last_line()})") from error
        finally:
            await client.aclose()
            await asyncio.shield(agent.end())
        ProfileCache(cache / "profiles").keep(measured.profile)
        return measured
    finally:
        shutil.rmtree(state, ignore_errors=True)


async def _measure_on(
    agent: Child, client: AgentClient, config: AgentConfig, source: ModelSource, quick: bool, console: Console
) -> Measured:
    device = await _first_device(agent, config)
    with _progress(console, source.uri) as tell:
        job = await client.start_profile("default/profile", source, device.uuid, quick)
        async with asyncio.timeout(LONGEST_S):
            while True:
                view = await client.job(job)
                tell(view)
                if view.state is not JobState.RUNNING:
                    return _outcome(view, device)
                await asyncio.sleep(POLL_S)


async def _first_device(agent: Child, config: AgentConfig) -> Device:
    end = time.monotonic() + AGENT_START_S
    async with httpx.AsyncClient(timeout=5) as http:
        while time.monotonic() < end:
            if not agent.running:
                raise CommandError(f"the agent did not start (code {agent.exit_code}): {agent.last_line()}")
            try:
                port = int(config.port_file.read_text())
                answer = await http.get(f"http://127.0.0.1:{port}/v1/devices")
                if answer.is_success and (devices := Node.model_validate_json(answer.content).devices):
                    return devices[0]
            except (OSError, ValueError, httpx.HTTPError):
                pass  # not yet
            await asyncio.sleep(POLL_S)
    raise CommandError(f"the agent tells of no device after {AGENT_START_S:g} s: {agent.last_line()}")


def _outcome(view: JobView, device: Device | None = None) -> Measured:
    if view.profile is None:
        raise CommandError(f"measuring failed: {view.error}")
    return Measured(profile=view.profile, device=device, validation=view.validation, lacks=view.lacks)


@contextmanager
def _progress(console: Console, name: str) -> Iterator[Callable[[JobView], None]]:
    """A bar on a terminal; else a line whenever something else is measured."""
    if not console.is_terminal:
        said = ""

        def line(view: JobView) -> None:
            nonlocal said
            if view.note != said:
                said = view.note
                console.print(
                    f"measuring {name}: {view.done} of {view.total}, {view.note}", markup=False, soft_wrap=True
                )

        yield line
        return
    columns = (TextColumn("measuring {task.fields[model]}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeElapsedColumn(), TextColumn("{task.fields[note]}"), console=console) as bar:
        task = bar.add_task("", total=None, model=name, note="")
        yield lambda view: bar.update(task, total=view.total or None, completed=view.done, note=view.note)
