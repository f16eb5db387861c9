"""What the profiler needs of an engine: a part of its control client, and its start and stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from ..engines.wire import (
    EngineState,
    Identity,
    Measurement,
    MeasureRequest,
    ResidencyRequest,
    SleepRequest,
    WakeRequest,
)


class EngineFace(Protocol):
    """The calls of EngineControl that are used here. Each raises EngineError and has its own deadline."""

    async def identity(self) -> Identity: ...

    async def state(self) -> EngineState: ...

    async def residency(self, request: ResidencyRequest) -> EngineState: ...

    async def sleep(self, request: SleepRequest) -> EngineState: ...

    async def wake(self, request: WakeRequest) -> EngineState: ...

    async def measure(self, request: MeasureRequest) -> Measurement: ...


class ProfiledEngine(Protocol):
    """A running engine that is ready. `started_s`: seconds from the start of its process to its first Ready."""

    @property
    def control(self) -> EngineFace: ...

    @property
    def started_s(self) -> float: ...

    async def stop(self) -> None:
        """May be called twice."""
        ...


StartEngine = Callable[[int | None, int, int], Awaitable[ProfiledEngine]]
"""(resident weight bytes or None for all, KV bytes, budget bytes) -> an engine that is ready."""
