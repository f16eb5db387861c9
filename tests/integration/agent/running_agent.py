"""A real agent process for tests, its command socket, and what it wrote when something goes wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil

from estiba_scheduler.domain import InstanceState, InstanceStatus
from tests.waiting import until, until_async

MIB = 1024 * 1024
START_S = 60.0
MODEL = {"uri": "random://qwen3?hidden=64&layers=2&tokenizer=bytes", "context_tokens": 256, "max_batch": 2}


def a_spec(name: str = "a-1", **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": name,
        "deployment": "default/a",
        "model": MODEL,
        "served_name": "a",
        "node": "n1",
        "device": "cpu-0",
        "resident_bytes": 64 * MIB,
        "kv_bytes": MIB,
        "budget_bytes": 64 * MIB,
        "start_deadline_s": 60.0,
        "generation": 1,
    }
    return fields | changes


class RunningAgent:
    """`python -m estiba_agent` on a state directory."""

    def __init__(self, directory: Path, redis_url: str = "", device: str = "cpu:memory=200MiB", **config: Any) -> None:
        self.state = directory / "s"
        self._log = directory / "agent.log"
        self._config = directory / "agent.json"
        values = {
            "node": "n1",
            "state_dir": str(self.state),
            "redis_url": redis_url or f"unix://{directory}/nowhere.sock",
            "devices": [device],
            "heartbeat_s": 0.2,
            "poll_s": 0.1,
        }
        self._config.write_text(json.dumps(values | config))
        self.process = self._start()

    def again(self) -> None:
        """The next agent on the same directory."""
        assert self.process.poll() is not None
        self.process = self._start()

    def up(self) -> None:
        """Wait until it answers."""

        def answers() -> bool:
            assert self.process.poll() is None, f"the agent ended with {self.process.returncode}:\n{self.story()}"
            return self._port_file.exists() and (self.state / "agent.sock").exists() and self.get("/readyz").is_success

        until(answers, START_S, f"the agent is ready\n{self.story()}")

    def story(self) -> str:
        logs = [self._log, *self.state.glob("e/*/log.txt")]
        return "\n".join(f"--- {log}\n{log.read_text(errors='replace')[-4000:]}" for log in logs if log.exists())

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(START_S)

    def exit_code(self) -> int:
        until(lambda: self.process.poll() is not None, START_S, f"the agent ends\n{self.story()}")
        return int(self.process.returncode)

    # -- its two faces ----------------------------------------------------------------------------------------------

    def get(self, path: str) -> httpx.Response:
        """Of the metrics API."""
        try:
            return httpx.get(f"http://127.0.0.1:{self._port_file.read_text().strip()}{path}", timeout=10)
        except (httpx.TransportError, OSError):
            return httpx.Response(599)

    def command(self, method: str, path: str, body: Any = None) -> httpx.Response:
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(self.state / "agent.sock")), timeout=30) as client:
            return client.request(method, f"http://agent{path}", json=body)

    def want(self, spec: dict[str, Any]) -> InstanceStatus:
        answer = self.command("PUT", f"/v1/instances/{spec['id']}", spec)
        assert answer.is_success, answer.text
        return InstanceStatus.model_validate_json(answer.content)

    def status(self, name: str = "a-1") -> InstanceStatus:
        views = {view["spec"]["id"]: view["status"] for view in self.command("GET", "/v1/instances").json()}
        return InstanceStatus.model_validate(views[name])

    async def until(self, state: InstanceState, generation: int, name: str = "a-1") -> InstanceStatus:
        last = self.status(name)

        async def there() -> bool:
            nonlocal last
            last = self.status(name)
            assert last.state is not InstanceState.FAILED or state is InstanceState.FAILED, f"{last}\n{self.story()}"
            return last.state is state and last.settled_generation >= generation

        await until_async(there, START_S, f"{state}\n{self.story()}")
        return last

    def series(self, *parts: str) -> dict[str, float]:
        """Lines of `/metrics` that contain every part."""
        lines = [line for line in self.get("/metrics").text.splitlines() if not line.startswith("#")]
        found = [line.rpartition(" ") for line in lines if all(part in line for part in parts)]
        return {name: float(value) for name, _, value in found}

    # -- processes --------------------------------------------------------------------------------------------------

    def engines(self) -> list[int]:
        return [p.pid for p in _processes(lambda line: line[-1].startswith(str(self.state)))]

    def sweep(self) -> None:
        """End whatever is left."""
        if self.process.poll() is None:
            self.kill()
        for pid in self.engines():
            os.kill(pid, signal.SIGKILL)

    # -- inner ------------------------------------------------------------------------------------------------------

    @property
    def _port_file(self) -> Path:
        return self.state / "agent.port"

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "estiba_agent", str(self._config)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )


def _processes(which: Callable[[list[str]], bool]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
            if line and which(line) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found
