"""Profiling jobs on real processes of the ScriptedEngine; what is measured is scripted, how it is run is real."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from estiba_agent.api.bodies import CommandRefused, FactsAnswer, FactsRequest, JobState, JobView, ProfileRequest
from estiba_agent.engines.wire import EnginePhase
from estiba_agent.jobs import ProfileJobs
from estiba_agent.jobs.job_engine import end_left_over
from estiba_agent.node_report import Reading
from estiba_scheduler.domain import Device, InstanceState, ModelProfile, ModelSource
from estiba_scheduler.prediction import ModelFacts
from tests.builders import a_device, a_profile
from tests.waiting import until_async

from .supervised import COMMAND, DEADLINE_S, ScriptedHardware, SupervisedNode

BYTES = 1000


class JobHardware(ScriptedHardware):
    """The scripted device, as a reading too."""

    @property
    def reading(self) -> Reading:
        free = BYTES - sum(self.held.values())
        return Reading((a_device(memory_bytes=BYTES, free_bytes=free),), ())


class ScriptedFacts:
    async def answer(self, request: FactsRequest) -> FactsAnswer:
        facts = ModelFacts(weight_bytes=400, fixed_bytes=100, layer_bytes=(100, 100, 100), kv_bytes_per_token=0)
        return FactsAnswer(digest=request.model.uri, dtype="float32", engine="e", engine_version="1", facts=facts)


class ScriptedMeasuring:
    """Stands in for `profile_model`: starts one engine, reports a step, and goes on when it is let."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.budget_bytes = 600
        self.asked: list[dict[str, Any]] = []
        self.phases: list[EnginePhase] = []
        self.error: Exception | None = None

    async def __call__(self, start_engine: Any, model: ModelSource, device: Device, *rest: Any, **more: Any) -> Any:
        self.asked.append(more)
        engine = await start_engine(None, 50, self.budget_bytes)
        self.phases.append((await engine.control.state()).phase)
        more["on_progress"](1, 3, "started an engine")
        if self.error:
            raise self.error
        await self.go_on.wait()
        await engine.stop()
        return SimpleNamespace(profile=a_profile(), validation=(), lacks=())


class Bench:
    def __init__(self, directory: Path) -> None:
        self.node = SupervisedNode(directory / "e", hardware=JobHardware())
        self.measuring = ScriptedMeasuring()
        self.profiles: list[ModelProfile] = []
        self.jobs_dir = directory / "jobs"
        self.jobs = ProfileJobs(
            "n1",
            lambda key: self.jobs_dir / key.partition("|")[0].rpartition("/")[2],
            directory / "models",
            self.node.hardware,  # type: ignore[arg-type]
            self.node.supervisor,
            ScriptedFacts(),  # type: ignore[arg-type]
            self.profiles.append,
            self.measuring,
            COMMAND,
        )

    async def start(self, uri: str = "file:///m") -> str:
        model = ModelSource(uri=uri)
        return await self.jobs.start(ProfileRequest(deployment="default/a", model=model, device="cpu-0", quick=True))

    async def until(self, job: str, **so: Any) -> JobView:
        async def there() -> bool:
            view = self.jobs.view(job)
            return all(getattr(view, name) == value for name, value in so.items())

        await until_async(there, DEADLINE_S, f"{so}: {self.jobs.view(job)}")
        return self.jobs.view(job)

    def engines(self) -> list[int]:
        return [p.pid for p in self.node.engines(self.jobs_dir)]


@pytest.fixture
async def bench(short_dir: Path) -> AsyncIterator[Bench]:
    bench = Bench(short_dir)
    await bench.node.begin()
    try:
        yield bench
    finally:
        await bench.jobs.cancel_all()
        await bench.node.end()
        bench.node.sweep()
        for pid in bench.engines():
            os.kill(pid, signal.SIGKILL)


async def test_a_job_measures_on_an_engine_of_its_own_and_leaves_none(bench: Bench) -> None:
    job = await bench.start()
    view = await bench.until(job, done=1)
    assert (view.state, view.total, view.note) == (JobState.RUNNING, 3, "started an engine")
    assert bench.measuring.phases == [EnginePhase.READY]
    assert len(bench.engines()) == 1
    assert bench.node.supervisor.instances() == [], "it is no instance"
    bench.measuring.go_on.set()
    view = await bench.until(job, state=JobState.DONE)
    assert view.profile == a_profile()
    assert bench.profiles == [a_profile()]
    assert bench.engines() == []


async def test_one_job_at_a_time_measures_on_a_device(bench: Bench) -> None:
    first = await bench.start("file:///one")
    await bench.until(first, done=1)
    second = await bench.start("file:///two")
    await bench.until(second, note="waits for the job that measures on cpu-0")
    bench.measuring.go_on.set()
    await bench.until(first, state=JobState.DONE)
    await bench.until(second, state=JobState.DONE)


async def test_the_same_measuring_is_not_done_twice_at_once(bench: Bench) -> None:
    assert await bench.start() == await bench.start()


async def test_a_cancelled_job_ends_its_engine_and_is_resumed_in_the_same_place(bench: Bench) -> None:
    job = await bench.start()
    await bench.until(job, done=1)
    view = await bench.jobs.cancel(job)
    assert view.state is JobState.FAILED
    assert "cancelled" in str(view.error)
    assert bench.engines() == []
    bench.measuring.go_on.set()
    await bench.until(await bench.start(), state=JobState.DONE)
    first, second = bench.measuring.asked
    assert first["store_dir"] == second["store_dir"]
    assert first["cancelled"]()
    assert not second["cancelled"]()


async def test_measuring_that_breaks_leaves_no_engine(bench: Bench) -> None:
    bench.measuring.error = RuntimeError("a surprise")
    job = await bench.start()
    view = await bench.until(job, state=JobState.FAILED)
    assert "a surprise" in str(view.error)
    assert bench.engines() == []


async def test_a_job_without_room_is_refused_with_numbers(bench: Bench) -> None:
    bench.node.hardware.held["x"] = 700
    with pytest.raises(CommandRefused) as refused:
        await bench.start()
    assert (refused.value.status, refused.value.reason) == (409, "InsufficientDeviceMemory")
    assert "default/a" in refused.value.message


async def test_a_job_keeps_clear_of_what_instances_may_take(bench: Bench) -> None:
    """Their budgets count, not only what they hold at the moment."""
    bench.node.want(budget_bytes=500)
    await bench.node.until(InstanceState.READY)
    view = await bench.until(await bench.start(), state=JobState.FAILED)
    assert "short" in str(view.error)
    assert "a-1" in str(view.error)
    assert bench.engines() == []


async def test_an_engine_that_does_not_come_up_fails_the_job_with_its_last_words(bench: Bench) -> None:
    engine_dir = bench.jobs_dir / "m" / "e"
    engine_dir.mkdir(parents=True)
    (engine_dir / "script.json").write_text('{"load": false, "die": "failed: OutOfMemory: 612 wanted"}')
    view = await bench.until(await bench.start(), state=JobState.FAILED)
    assert "OutOfMemory: 612 wanted" in str(view.error)


async def test_an_engine_left_over_by_a_killed_agent_is_ended(bench: Bench) -> None:
    job = await bench.start()
    await bench.until(job, done=1)
    (pid,) = bench.engines()
    end_left_over(bench.jobs_dir, COMMAND)

    async def gone() -> bool:
        return bench.engines() == []

    await until_async(gone, DEADLINE_S, str(pid))


def test_a_bystander_that_reads_a_launch_file_is_left_alone(short_dir: Path) -> None:
    directory = short_dir / "jobs" / "x" / "e"
    directory.mkdir(parents=True)
    (directory / "launch.json").write_text("{}")
    bystander = subprocess.Popen(
        ["tail", "-f", str(directory / "launch.json")], stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        end_left_over(short_dir / "jobs")
        with pytest.raises(subprocess.TimeoutExpired):
            bystander.wait(0.2)
    finally:
        bystander.kill()
        bystander.wait()
