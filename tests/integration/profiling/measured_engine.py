"""Real engine processes for the profiler, on a cpu device of their own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from estiba_agent.devices import CpuProvider, parse_device
from estiba_agent.engines.control_client import EngineControl
from estiba_agent.engines.wire import EnginePhase
from estiba_agent.models import resolve
from estiba_agent.profiling import Effort, ProfilingResult, profile_model
from estiba_scheduler.domain import ModelSource, ProfileKey
from tests.integration.engine.running_engine import RunningEngine, a_launch
from tests.waiting import until_async

STOP_S = 20.0


class MeasuredEngine:
    """A RunningEngine as the profiler sees it."""

    def __init__(self, running: RunningEngine, started_s: float) -> None:
        self.running = running
        self.control: EngineControl = running.control()
        self.started_s = started_s

    async def stop(self) -> None:
        if self.running.process.poll() is None:
            await self.control.stop()

            async def gone() -> bool:
                return self.running.process.poll() is not None

            await until_async(gone, STOP_S, f"the engine ends\n{self.running.story()}")
        await self.control.aclose()


class MeasuringPlace:
    """A device, and the engines that were started on it."""

    def __init__(self, directory: Path, uri: str, device: str, cache: Path, **model: Any) -> None:
        self.directory = directory
        self.model = ModelSource(uri=uri, **{"context_tokens": 256, "max_batch": 4} | model)
        self.cache = cache
        self.request = parse_device(device)
        (self.device,), (self.link,) = CpuProvider("n1", [self.request], directory).devices()
        self.resolved = resolve(uri, cache)
        self.key = ProfileKey(
            model_digest=self.resolved.digest,
            dtype=self.resolved.resolved_dtype("auto"),
            engine="torch",
            engine_version="1",
            product=self.device.product,
        )
        self.engines: list[MeasuredEngine] = []
        self.notes: list[str] = []

    async def start_engine(self, resident: int | None, kv_bytes: int, budget_bytes: int) -> MeasuredEngine:
        directory = self.directory / str(len(self.engines))
        directory.mkdir()
        launch = a_launch(
            directory,
            self.model.uri,
            model=self.model,
            model_cache=self.cache,
            ledger_dir=self.directory / "ledger" / self.device.uuid,
            device_memory_bytes=self.device.memory_bytes,
            link_file=self.directory / "link",
            link_bytes_per_s=self.request.link_bytes_per_s,
            resident_bytes=resident,
            kv_bytes=kv_bytes,
            budget_bytes=budget_bytes,
        )
        running = RunningEngine(directory, launch)
        try:
            state = await running.until_phase(EnginePhase.READY)
        except BaseException:
            running.end()
            raise
        self.engines.append(MeasuredEngine(running, state.load_s or 0.0))
        return self.engines[-1]

    async def profile(self, effort: Effort | None = None, **changes: Any) -> ProfilingResult:
        self.notes.clear()
        values: dict[str, Any] = {"budget_s": 240.0, "quick": True, "effort": effort}
        return await profile_model(
            self.start_engine,
            self.model,
            self.device,
            self.link,
            self.key,
            store_dir=self.directory / "job",
            on_progress=lambda done, total, note: self.notes.append(note),
            facts=self.resolved.facts("auto"),
            **values | changes,
        )

    @property
    def running(self) -> list[int]:
        return [e.running.process.pid for e in self.engines if e.running.process.poll() is None]

    async def end(self) -> None:
        for engine in self.engines:
            engine.running.end()
        await asyncio.gather(*(engine.control.aclose() for engine in self.engines))
