"""`estiba up` with small random models, as a user would run it, and the other commands beside it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import yaml

from estiba.up_process import UpProcess
from estiba_scheduler.store import Decision
from tests.waiting import until_async

MODEL = "random://qwen3?hidden=64&layers=4&tokenizer=bytes&seed={seed}"
DEVICE = "cpu:memory=200MiB"
DEADLINE_S = 60.0
ENGINE = "estiba_agent.engines"


def a_document(name: str, seed: int = 0, uri: str = "", **spec: Any) -> dict[str, Any]:
    """A ModelDeployment of a tiny model that nobody puts away for being idle."""
    fields: dict[str, Any] = {
        "model": {"uri": uri or MODEL.format(seed=seed)},
        "engine": {"contextTokens": 2048, "maxBatch": 4},
        "kvCache": "8MiB",
        "idle": {"mode": "Never"},
    }
    return {
        "apiVersion": "estiba.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": name},
        "spec": fields | spec,
    }


def write(file: Path, *documents: dict[str, Any]) -> Path:
    file.write_text(yaml.safe_dump_all(documents))
    return file


class RunningUp(UpProcess):
    """An `estiba up` for tests. Models are planned by estimates unless `measure`."""

    def __init__(
        self,
        directory: Path,
        file: Path | None = None,
        *options: str,
        measure: bool = False,
        device: str = DEVICE,
    ) -> None:
        arguments = ["--device", device, "--port", "0", "--profile-cache", str(directory / "cache"), *options]
        arguments += ["-f", str(file)] if file else []
        arguments += [] if measure else ["--no-profile"]
        super().__init__(directory / "s", arguments, directory / "up.log")

    def engines(self) -> list[psutil.Process]:
        """Engine processes of this state directory."""
        return [p for p in self.left_over() if any(word.startswith(ENGINE) for word in p.cmdline())]

    def kill(self) -> None:
        """`kill -9` of `up` itself; what it started lives on."""
        os.kill(self.pid, signal.SIGKILL)
        psutil.Process(self.pid).wait(DEADLINE_S)

    async def until_ready(self, *names: str) -> None:
        await self.until(
            lambda view: (
                all(m.state == "Ready" for m in view.models if m.name in names)
                and {m.name for m in view.models} >= set(names)
            ),
            f"{', '.join(names)} ready",
            DEADLINE_S,
        )

    async def until_running(self, name: str, count: int = 1) -> None:
        """So many requests run in its engine."""
        await self.until(
            lambda view: (
                sum(i.status.in_flight for i in view.instances if i.status and i.spec.served_name == name) >= count
            ),
            f"{count} requests run on {name}",
            DEADLINE_S,
        )

    async def until_decided(self, name: str, kind: str) -> Decision:
        async def found() -> Decision | None:
            return next((d for d in await self.decisions(name) if d.kind == kind), None)

        decision = await until_async(found, DEADLINE_S, f"{kind} of {name}")
        assert decision is not None
        return decision

    async def kinds(self, name: str) -> list[str]:
        """What was done about a model, without verdicts."""
        return [d.kind for d in await self.decisions(name) if d.kind != "Verdict"]

    def estiba(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Another command on the same state directory, in its own process."""
        command = [sys.executable, "-m", "estiba.main", *arguments, "--state", str(self.state_dir)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    async def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(self.estiba, *arguments)
