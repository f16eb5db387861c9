"""A double of an engine under measurement: it streams by the formula, and misbehaves as it is told to.

Nothing takes time: seconds pass on the ScriptedClock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from estiba_agent.engines.control_client import EngineRefused
from estiba_agent.engines.wire import (
    EnginePhase,
    EngineState,
    Identity,
    Measurement,
    MeasureRequest,
    ResidencyRequest,
    SleepRequest,
    WakeRequest,
)
from estiba_agent.profiling import Effort, ProfilingResult, profile_model
from estiba_agent.profiling.assembly import facts_of
from estiba_agent.profiling.bench import Instruments
from estiba_scheduler.domain import Footprint, HostLink, ProfileKey
from estiba_scheduler.prediction import ModelFacts, resident_levels
from estiba_scheduler.prediction.streaming import step_s
from tests.builders import MIB, PRODUCT, a_device, a_footprint, a_model

KEY = ProfileKey(model_digest="m", dtype="float32", engine="torch", engine_version="1", product=PRODUCT)
COMPUTE_S = 0.1
LINK = 1024.0 * MIB
RSS_BYTES = 900 * MIB


@dataclass
class ScriptedClock:
    now_s: float = 1_000_000.0

    def seconds(self) -> float:
        return self.now_s

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass
class Script:
    """How the engines behave. `noise(n)`: factor on the n-th step of a measurement."""

    footprint: Footprint = field(default_factory=a_footprint)
    noise: Callable[[int], float] = lambda n: 1.0
    achieved: Callable[[int], int] = lambda asked: asked
    device_bytes: Callable[[int], int] | None = None
    refuses_residency: frozenset[int] = frozenset()
    sleep_levels: tuple[int, ...] = (1, 2)
    canary_fails_at: int | None = None
    hangs_at_measure: int | None = None
    hangs_at_start: bool = False
    sleep_s: float = 0.3
    wake_s: float = 0.7
    canary_s: float = 0.2
    start_s: float = 5.0
    overhead_s: float = 0.0


class ScriptedEngine:
    """The handle and, at once, the control face of one scripted engine."""

    def __init__(self, script: Script, clock: ScriptedClock, calls: list[Any], resident: int | None, kv: int) -> None:
        self.script = script
        self.clock = clock
        self.calls = calls
        self.started_s = script.start_s
        self.stopped = 0
        whole = script.footprint.weight_bytes
        self._resident = self._snapped(whole if resident is None else min(resident, whole))
        self._kv = kv
        self._phase = EnginePhase.READY

    @property
    def control(self) -> ScriptedEngine:
        return self

    async def stop(self) -> None:
        self.clock.pass_s(0.25)
        self.stopped += 1

    async def identity(self) -> Identity:
        return Identity(
            pid=4242,
            started_at=0,
            boot_id="b",
            instance="i",
            served_name="m",
            model_digest="m",
            engine="torch",
            engine_version="1",
            generation=1,
        )

    async def state(self) -> EngineState:
        foot, asleep = self.script.footprint, self._phase in (EnginePhase.ASLEEP1, EnginePhase.ASLEEP2)
        held = self.script.device_bytes(self._resident) if self.script.device_bytes else self._held()
        return EngineState(
            phase=self._phase,
            footprint=foot,
            resident_bytes=self._resident,
            resident_fraction=self._resident / foot.weight_bytes,
            device_bytes=foot.overhead_bytes if asleep else held,
            host_bytes=self._host(),
            kv_bytes=self._kv,
        )

    async def residency(self, request: ResidencyRequest) -> EngineState:
        self.calls.append(request)
        if request.resident_bytes in self.script.refuses_residency:
            raise EngineRefused(409, "OutOfMemory", "short of 12 MiB")
        self._resident, self._kv = self._snapped(request.resident_bytes), request.kv_bytes
        return await self.state()

    async def measure(self, request: MeasureRequest) -> Measurement:
        self.calls.append(request)
        if self.script.hangs_at_measure == sum(isinstance(c, MeasureRequest) for c in self.calls):
            await asyncio.Event().wait()
        foot = self.script.footprint
        streamed = foot.weight_bytes - self._resident
        compute = COMPUTE_S * (1 + 0.1 * (request.batch - 1)) + 1e-5 * request.context_tokens
        step = step_s(compute, streamed, LINK, self.script.overhead_s)
        steps = tuple(step * self.script.noise(n) for n in range(request.steps))
        self.clock.pass_s(sum(steps))
        return Measurement(
            batch=request.batch,
            context_tokens=request.context_tokens,
            resident_fraction=self._resident / foot.weight_bytes,
            resident_bytes=self._resident,
            step_s=steps,
            compute_s=tuple(min(compute, s) for s in steps),
            prefill_s=0.01 * request.context_tokens * request.batch,
            streamed_bytes_per_step=streamed,
            activation_bytes=3 * MIB,
        )

    async def sleep(self, request: SleepRequest) -> EngineState:
        self.calls.append(request)
        if request.level not in self.script.sleep_levels:
            raise EngineRefused(422, "Unsupported", f"there is no level {request.level} here")
        self.clock.pass_s(self.script.sleep_s)
        self._phase = EnginePhase.ASLEEP1 if request.level == 1 else EnginePhase.ASLEEP2
        return await self.state()

    async def wake(self, request: WakeRequest) -> EngineState:
        self.calls.append(request)
        if request.verify and self._phase is not EnginePhase.READY and self._failing():
            self._phase = EnginePhase.FAILED
            raise EngineRefused(500, "CanaryMismatch", "the canary generation differs")
        self.clock.pass_s(self.script.wake_s + (self.script.canary_s if request.verify else 0.0))
        self._phase, self._resident = EnginePhase.READY, self._snapped(request.resident_bytes)
        return await self.state()

    def _failing(self) -> bool:
        return self._phase is {1: EnginePhase.ASLEEP1, 2: EnginePhase.ASLEEP2}.get(self.script.canary_fails_at or 0)

    def _snapped(self, asked: int) -> int:
        foot = self.script.footprint
        return self.script.achieved(
            max(level for level in resident_levels(foot) if level <= max(asked, foot.fixed_bytes))
        )

    def _held(self) -> int:
        foot = self.script.footprint
        ring = foot.stream_buffer_bytes if self._resident < foot.weight_bytes else 0
        return self._resident + ring + foot.overhead_bytes

    def _host(self) -> int:
        offloaded = self.script.footprint.weight_bytes - self._resident
        return {EnginePhase.ASLEEP1: self.script.footprint.weight_bytes, EnginePhase.ASLEEP2: 0}.get(
            self._phase, round(1.9 * offloaded)
        )


class Workshop:
    """Everything that one model is profiled with, call after call."""

    def __init__(self, directory: Path, script: Script | None = None, **device: Any) -> None:
        self.script = script or Script()
        self.clock = ScriptedClock()
        self.store_dir = directory / "jobs"
        self.device = a_device(**{"memory_mib": 2048} | device)
        self.engines: list[ScriptedEngine] = []
        self.starts: list[tuple[int | None, int, int]] = []
        self.calls: list[Any] = []
        self.told: list[tuple[int, int, str]] = []
        self.cancel_after: int | None = None

    async def start_engine(self, resident: int | None, kv: int, budget: int) -> ScriptedEngine:
        if self.script.hangs_at_start:
            await asyncio.Event().wait()
        self.starts.append((resident, kv, budget))
        self.clock.pass_s(self.script.start_s)
        self.engines.append(ScriptedEngine(self.script, self.clock, self.calls, resident, kv))
        return self.engines[-1]

    async def profile(self, effort: Effort | None = None, key: ProfileKey = KEY, **changes: Any) -> ProfilingResult:
        self.calls.clear()
        self.told.clear()
        facts: ModelFacts | None = facts_of(self.script.footprint)
        values: dict[str, Any] = {"budget_s": 60.0, "quick": True, "facts": facts, "effort": effort}
        return await profile_model(
            self.start_engine,
            a_model(context_tokens=512, max_batch=4),
            self.device,
            HostLink(id="link-0", limit_bytes_per_s=LINK),
            key,
            store_dir=self.store_dir,
            on_progress=lambda *told: self.told.append(told),
            cancelled=lambda: self.cancel_after is not None and len(self.told) >= self.cancel_after,
            instruments=Instruments(self.clock.seconds, self.clock.seconds, lambda pid: RSS_BYTES),
            **values | changes,
        )

    @property
    def measured(self) -> list[MeasureRequest]:
        return [call for call in self.calls if isinstance(call, MeasureRequest)]

    @property
    def running(self) -> int:
        return sum(not engine.stopped for engine in self.engines)
