"""A real engine process for tests, and what it wrote when something goes wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
from openai import AsyncOpenAI

from estiba_agent.devices import DeviceLedger
from estiba_agent.engines.control_client import EngineControl, EngineUnreachable
from estiba_agent.engines.wire import EngineLaunch, EnginePhase, EngineState, WakeRequest
from estiba_agent.process_start import started_at_s
from estiba_scheduler.domain import ModelSource, ProcessIdentity
from tests.waiting import until, until_async

MIB = 1024 * 1024
START_S = 90.0
DEADLINE_S = 30.0
DEVICE_BYTES = 64 * MIB
BUDGET_BYTES = 48 * MIB
KV_BYTES = 16 * MIB
CONTEXT = 2048


def a_launch(directory: Path, uri: str, **changes: Any) -> EngineLaunch:
    values: dict[str, Any] = {
        "instance": "tiny-0001",
        "deployment": "default/tiny",
        "served_name": "tiny",
        "model": ModelSource(uri=uri, context_tokens=CONTEXT, max_batch=4),
        "device": "cpu-0",
        "ledger_dir": directory / "ledger",
        "device_memory_bytes": DEVICE_BYTES,
        "link_file": directory / "link",
        "kv_bytes": KV_BYTES,
        "budget_bytes": BUDGET_BYTES,
        "control_socket": directory / "c.sock",
        "log_file": directory / "log.txt",
        "model_cache": Path.home() / ".cache" / "estiba" / "models",
    }
    return EngineLaunch(**{**values, **changes})


class RunningEngine:
    """One engine process, its clients, and the ledger of its device."""

    def __init__(self, directory: Path, launch: EngineLaunch) -> None:
        self.launch = launch
        launch_file = directory / "launch.json"
        launch_file.write_text(launch.model_dump_json())
        self._output = directory / "output.txt"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "estiba_agent.engines.torch", str(launch_file)],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        assert launch.ledger_dir is not None
        self.ledger = DeviceLedger(launch.ledger_dir, launch.device_memory_bytes)

    def control(self, expect: ProcessIdentity | None = None) -> EngineControl:
        """A new client: httpx clients belong to one event loop, and so to one test."""
        return EngineControl(self.launch.control_socket, expect, timeout_s=DEADLINE_S)

    async def phase(self) -> EnginePhase | None:
        """As the engine says; None while nobody answers. Fails when the process is gone."""
        assert self.process.poll() is None, f"the engine ended with {self.process.returncode}:\n{self.story()}"
        async with self.control() as control:
            try:
                return (await control.state()).phase
            except EngineUnreachable:
                return None

    async def until_phase(self, *phases: EnginePhase) -> EngineState:
        async def there() -> bool:
            now = await self.phase()
            if now is EnginePhase.FAILED and now not in phases:
                raise AssertionError(f"the engine failed:\n{self.story()}")
            return now in phases

        await until_async(there, START_S, f"{phases}\n{self.story()}")
        async with self.control() as control:
            return await control.state()

    async def url(self) -> str:
        async with self.control() as control:
            state = await control.state()
        assert state.url is not None
        return state.url

    async def http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=await self.url(), timeout=DEADLINE_S)

    async def openai(self) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=f"{await self.url()}/v1", api_key="none", max_retries=0, timeout=DEADLINE_S)

    def full_wake(self, **changes: Any) -> WakeRequest:
        return WakeRequest(
            **{"resident_bytes": BUDGET_BYTES, "kv_bytes": KV_BYTES, "budget_bytes": BUDGET_BYTES, **changes}
        )

    def identity(self, **changes: Any) -> ProcessIdentity:
        return ProcessIdentity(**{"pid": self.process.pid, "started_at": started_at_s(self.process.pid), **changes})

    def story(self) -> str:
        """What the engine wrote."""
        files = (self.launch.log_file, self._output)
        return "\n".join(file.read_text(errors="replace")[-4000:] for file in files if file.exists())

    def last_line(self) -> str:
        return self.launch.log_file.read_text().rstrip().splitlines()[-1]

    def exit_code(self) -> int:
        """Once it has ended by itself."""
        until(lambda: self.process.poll() is not None, START_S, f"the engine ends\n{self.story()}")
        return int(self.process.returncode)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(DEADLINE_S)
