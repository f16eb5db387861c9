"""A supervisor on real processes of the ScriptedEngine, on a device whose readings a test may change."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from estiba_agent.supervisor.course import Patience
from estiba_agent.supervisor.events import DeviceSeen
from estiba_agent.supervisor.hardware import Place
from estiba_agent.supervisor.supervisor import Supervisor
from estiba_scheduler.domain import InstanceSpec, InstanceState, InstanceStatus, ModelSource
from tests.waiting import until_async

COMMAND = (sys.executable, str(Path(__file__).with_name("scripted_engine.py")))
DEADLINE_S = 20.0


class ScriptedHardware:
    """One device of 1000 bytes."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}

    def look(self) -> tuple[DeviceSeen, ...]:
        return (DeviceSeen("cpu-0", 1000, 1000, holders=dict(self.held)),)

    def place(self, device: str) -> Place:
        return {"cpu-0": Place("cpu-0", "cpu", 1000)}[device]


class Heard:
    """What a supervisor reports."""

    def __init__(self) -> None:
        self.statuses: list[InstanceStatus] = []
        self.gone: list[str] = []

    def status(self, status: InstanceStatus) -> None:
        self.statuses.append(status)

    def forgotten(self, instance: str) -> None:
        self.gone.append(instance)


def a_spec(name: str = "a-1", **changes: Any) -> InstanceSpec:
    fields: dict[str, Any] = {
        "id": name,
        "deployment": "default/a",
        "model": ModelSource(uri="file:///scripted"),
        "served_name": "a",
        "node": "n1",
        "device": "cpu-0",
        "resident_bytes": 300,
        "kv_bytes": 50,
        "budget_bytes": 400,
        "stop_grace_s": 0.3,
        "drain_deadline_s": 10.0,
        "start_deadline_s": 20.0,
        "generation": 1,
    }
    return InstanceSpec(**fields | changes)


class SupervisedNode:
    """Begin with `begin`, end with `end` (engines live on) and, at last, `sweep`."""

    def __init__(
        self, directory: Path, patience: Patience | None = None, hardware: ScriptedHardware | None = None
    ) -> None:
        self.directory = directory
        self.hardware = hardware or ScriptedHardware()
        self.heard = Heard()
        self.supervisor = Supervisor(
            "n1",
            directory,
            directory / "models",
            self.hardware,
            self.heard,
            time.time,
            poll_s=0.05,
            look_s=0.05,
            patience=patience,
            engine_command=COMMAND,
        )
        self._run: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        await self.supervisor.take_over()
        self._run = asyncio.create_task(self.supervisor.run())

    async def end(self) -> None:
        """As if the agent were killed: nothing is told to any engine."""
        assert self._run is not None
        self._run.cancel()
        await asyncio.gather(self._run, return_exceptions=True)

    def script(self, name: str = "a-1", **script: Any) -> None:
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        (directory / "script.json").write_text(json.dumps(script))

    def want(self, name: str = "a-1", **changes: Any) -> InstanceStatus:
        """The first spec of an instance, or the next generation of the one it has."""
        known = next((spec for spec, _ in self.supervisor.instances() if spec.id == name), None)
        if known is None:
            return self.supervisor.want(a_spec(name, **changes))
        return self.supervisor.want(known.model_copy(update={"generation": known.generation + 1, **changes}))

    def status(self, name: str = "a-1") -> InstanceStatus:
        return next(status for _, status in self.supervisor.instances() if status.id == name)

    async def until(self, state: InstanceState, name: str = "a-1", settled: bool = True) -> InstanceStatus:
        def there(status: InstanceStatus) -> bool:
            done = status.settled_generation >= status.observed_generation or not settled
            return status.state is state and done

        await self.until_status(there, name)
        return self.status(name)

    async def until_status(self, so: Callable[[InstanceStatus], bool], name: str = "a-1") -> None:
        async def there() -> bool:
            return so(self.status(name))

        try:
            await until_async(there, DEADLINE_S)
        except AssertionError as error:
            raise AssertionError(f"{self.status(name)}\n" + "\n".join(self.supervisor.story(name))) from error

    def log(self, name: str = "a-1") -> str:
        return (self.directory / name / "log.txt").read_text().strip()

    def calls(self, name: str = "a-1") -> list[str]:
        """As the engine wrote them down."""
        lines = self.log(name).splitlines()
        return [line.removeprefix("call ") for line in lines if line.startswith("call ")]

    def engines(self, directory: Path | None = None) -> list[psutil.Process]:
        """Processes of engines below this directory."""
        below = str(directory or self.directory)
        found = []
        for process in psutil.process_iter():
            try:
                line = process.cmdline()
                if line and line[-1].startswith(below) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def sweep(self) -> None:
        for process in self.engines():
            process.kill()
