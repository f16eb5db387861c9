"""The engine's process: both HTTP faces on one event loop, the engine's thread beside it, and how it all ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.types import ASGIApp

from estiba_agent.process_start import age_s, started_at_s

from ..wire import EngineLaunch, EnginePhase, Identity
from . import ENGINE, engine_version
from .control_api import ControlFace
from .engine_loop import EngineLoop
from .http_body import WithHeaders
from .openai_api import OpenAIFace

if TYPE_CHECKING:
    from .loading import LoadedModel

log = logging.getLogger(__name__)

STOP_GRACE_S = 5.0
"""How long running requests may go on after a stop; an agent drains before it stops."""

CONNECTION_GRACE_S = 2
KEEP_ALIVE_S = 75
"""Longer than clients keep idle connections, so that none is closed under a request that just sets out."""

SOCKET_PATH_LIMIT = 103
"""Longest path of a unix socket, in bytes (Linux takes 107, macOS 103)."""


class _QuietServer(uvicorn.Server):
    """Leaves signals alone: the process has two servers and one way to end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class EngineProcess:
    """One engine process, from launch to exit code."""

    def __init__(self, launch: EngineLaunch, engine: EngineLoop | None = None) -> None:
        """Opens both sockets. Raises OSError where one can't be had, ValueError for a path that is too long."""
        self._launch = launch
        self._boot_id = uuid.uuid4().hex
        self._started_at = started_at_s(os.getpid())
        self._tcp = _loopback_socket()
        self.url = f"http://127.0.0.1:{self._tcp.getsockname()[1]}"
        self._unix = _private_unix_socket(launch.control_socket)
        self._engine = engine or EngineLoop(launch, self.url, _load, time.time() - age_s(os.getpid()))
        self._asked_at: float | None = None
        self._stop_asked = asyncio.Event()
        self._cut = asyncio.Event()

    def identity(self) -> Identity:
        model = self._engine.model
        return Identity(
            pid=os.getpid(),
            started_at=self._started_at,
            boot_id=self._boot_id,
            instance=self._launch.instance,
            served_name=self._launch.served_name,
            model_digest=model.digest if model else self._launch.model.digest or "",
            engine=ENGINE,
            engine_version=engine_version(),
            generation=self._engine.state().generation,
        )

    async def run(self) -> int:
        """Serve until stopped or failed; the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        control = _server(ControlFace(self._engine, self.identity, self.stop).app())
        # says whose answer it is: a port may be reused by another engine
        openai = _server(WithHeaders(OpenAIFace(self._engine).app(), {"x-estiba-engine": self._launch.instance}))
        serving = [
            asyncio.create_task(control.serve(sockets=[self._unix])),
            asyncio.create_task(openai.serve(sockets=[self._tcp])),
        ]
        log.info("engine %s, process %d, boot %s: %s", self._launch.instance, os.getpid(), self._boot_id, self.url)
        self._engine.start()
        await self._until_over()
        for server in (openai, control):
            server.should_exit = True
        await asyncio.gather(*serving)
        self._launch.control_socket.unlink(missing_ok=True)
        return self._last_words()

    def stop(self) -> None:
        """Drain within the grace, then end; asked a second time, end at once."""
        if self._stop_asked.is_set():
            self._cut.set()
        else:
            log.info("asked to stop: running requests have %.0f s", STOP_GRACE_S)
        self._stop_asked.set()
        self._engine.stop(STOP_GRACE_S)

    async def _until_over(self) -> None:
        """Until the engine's thread has ended, or may no longer be waited for."""
        ended: asyncio.Future[Any] = asyncio.wrap_future(self._engine.ended)
        stop: asyncio.Future[Any] = asyncio.ensure_future(self._stop_asked.wait())
        await asyncio.wait({ended, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not ended.done() and not self._engine.loading:
            cut: asyncio.Future[Any] = asyncio.ensure_future(self._cut.wait())
            await asyncio.wait({ended, cut}, timeout=STOP_GRACE_S + 1, return_when=asyncio.FIRST_COMPLETED)
            cut.cancel()

    def _last_words(self) -> int:
        """The last line of the log says how it ended."""
        state = self._engine.state()
        if state.phase is EnginePhase.FAILED:
            log.error("failed: %s: %s", state.error_reason, state.error)
            return 1
        log.info("stopped")
        return 0


def _load(launch: EngineLaunch) -> LoadedModel:
    """In the engine's thread, because torch takes seconds to import."""
    from .loading import load

    return load(launch)


def _server(app: ASGIApp) -> _QuietServer:
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=CONNECTION_GRACE_S,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    return _QuietServer(config)


def _loopback_socket() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.bind(("127.0.0.1", 0))
    return made


def _private_unix_socket(path: Path) -> socket.socket:
    """A socket that only this user can speak to. One that an earlier process left there is replaced."""
    if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
        raise ValueError(f"the control socket path is longer than {SOCKET_PATH_LIMIT} bytes, use a shorter one: {path}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        made.bind(str(path))
    finally:
        os.umask(before)
    return made
