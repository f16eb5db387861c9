"""Runs `estiba up` as a user would, in a process of its own: for the demo, the benchmarks and the end-to-end tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import psutil

from estiba_scheduler.store import Decision

from .exits import CommandError
from .up.status_view import ModelStanding, StatusView

READY_DEADLINE_S = 180.0
END_DEADLINE_S = 90.0
POLL_S = 0.1
OURS = ("estiba.main", "estiba_agent", "estiba_gateway", "redis-server")


class UpProcess:
    """One `estiba up` on `state_dir`. `arguments` are those of the command, without --state."""

    def __init__(self, state_dir: Path, arguments: Sequence[str], log_file: Path | None = None) -> None:
        self.state_dir = state_dir
        self.log_file = log_file or state_dir / "up.log"
        self._arguments = list(arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: httpx.AsyncClient | None = None
        self._gateway: httpx.AsyncClient | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.poll() if self._process else None

    @property
    def gateway(self) -> httpx.AsyncClient:
        """A client of its OpenAI API."""
        assert self._gateway is not None, "it is not up"
        return self._gateway

    def start(self) -> None:
        self.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        command = [sys.executable, "-m", "estiba.main", "up", "--state", str(self.state_dir), *self._arguments]
        with self.log_file.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    async def answers(self, deadline_s: float = READY_DEADLINE_S) -> None:
        """Wait until its control socket and its gateway answer. Raises CommandError with its last words."""
        transport = httpx.AsyncHTTPTransport(uds=str(self.state_dir / "up.sock"))
        self._control = httpx.AsyncClient(transport=transport, base_url="http://up", timeout=30)
        view = await self.until(lambda view: view.gateway_url is not None, "it answers", deadline_s)
        assert view.gateway_url is not None
        limits = httpx.Limits(max_connections=None)
        self._gateway = httpx.AsyncClient(base_url=view.gateway_url, timeout=180, limits=limits)

    async def status(self) -> StatusView | None:
        """None while nobody answers."""
        assert self._control is not None
        try:
            response = await self._control.get("/v1/status")
        except httpx.HTTPError:
            return None
        return StatusView.model_validate_json(response.content) if response.is_success else None

    async def until(self, condition: Callable[[StatusView], bool], what: str, deadline_s: float = 60.0) -> StatusView:
        """The first status for which `condition` holds. Raises CommandError with the last one seen."""
        end = time.monotonic() + deadline_s
        view = None
        while time.monotonic() < end:
            if self.exit_code is not None:
                raise CommandError(f"`estiba up` ended with code {self.exit_code}: {self.last_words()}")
            view = await self.status()
            if view is not None and condition(view):
                return view
            await asyncio.sleep(POLL_S)
        seen = "nothing" if view is None else "; ".join(f"{m.name} {m.state}: {m.message}" for m in view.models)
        raise CommandError(f"not so after {deadline_s:g} s: {what}. Last seen: {seen}. Log: {self.last_words()}")

    async def model(self, name: str) -> ModelStanding:
        view = await self.until(lambda view: any(m.name == name for m in view.models), f"{name} is known")
        return next(m for m in view.models if m.name == name)

    async def decisions(self, name: str | None = None, limit: int = 200) -> list[Decision]:
        assert self._control is not None
        params: dict[str, str | int] = {"limit": limit} | ({"deployment": name} if name else {})
        response = await self._control.get("/v1/decisions", params=params)
        response.raise_for_status()
        return [Decision.model_validate(item) for item in response.json()["decisions"]]

    async def post(self, path: str, body: object) -> httpx.Response:
        assert self._control is not None
        return await self._control.post(path, json=body, timeout=600)

    async def end(self, deadline_s: float = END_DEADLINE_S) -> int:
        """SIGTERM, as Ctrl-C would; kills it after the deadline and raises CommandError then. Its exit code."""
        for client in (self._gateway, self._control):
            if client is not None:
                await client.aclose()
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            return await asyncio.to_thread(self._process.wait, deadline_s)
        except subprocess.TimeoutExpired:
            self.kill_all()
            raise CommandError(f"`estiba up` did not end within {deadline_s:g} s: {self.last_words()}") from None

    def kill_all(self) -> None:
        """Whatever still runs on this state directory, with no goodbye. For cleaning up after a failure."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for process in self.left_over():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def left_over(self) -> list[psutil.Process]:
        """Processes of ours, whoever started them, that have the state directory in their command line."""
        marked = []
        for process in psutil.process_iter():
            if process.pid == os.getpid():
                continue
            try:
                words = " ".join(process.cmdline())
                ours = str(self.state_dir) in words and any(name in words for name in OURS)
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    marked.append(process)
            except psutil.Error:
                continue
        return marked

    def processes(self) -> dict[str, int]:
        """Names and pids of what `up` started beside engines: agent, gateway, redis."""
        known = json.loads((self.state_dir / "up.json").read_bytes())
        return {name: int(identity["pid"]) for name, identity in known.items()}

    def last_words(self, lines: int = 4) -> str:
        try:
            return "\n".join(self.log_file.read_text(errors="replace").strip().splitlines()[-lines:])
        except OSError:
            return "no log"
