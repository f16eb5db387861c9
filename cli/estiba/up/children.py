"""The processes that `up` keeps running: started, restarted when they die, ended in order, found again after a kill."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from pydantic import TypeAdapter

from estiba_agent.process_start import same_start, started_at_s
from estiba_agent.supervisor.process import write_atomically

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0
SETTLED_S = 30.0
"""A process that ran for so long starts again at once when it dies."""
END_PATIENCE_S = 15.0
POLL_S = 0.05
LOG_LIMIT_BYTES = 8 * 1024 * 1024


class ChildFailed(Exception):
    """A process that ends as soon as it is started; `str()` has the last line it said."""


class Child:
    """One process under one name. Its output goes to `<logs>/<name>.log`."""

    def __init__(self, name: str, command: Sequence[str], log_file: Path) -> None:
        self.name = name
        self.log_file = log_file
        self.restarts = 0
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._retry_at = 0.0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll() if self._process is not None else None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        self.log_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.log_file.exists() and self.log_file.stat().st_size > LOG_LIMIT_BYTES:
            self.log_file.replace(self.log_file.with_suffix(".old.log"))
        with self.log_file.open("ab") as output:
            # A session of its own: Ctrl-C at the terminal reaches us alone, and we end things in order.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self._started_at = time.monotonic()

    def keep(self) -> bool:
        """Start it again if it died and its pause is over. True when it was started."""
        now = time.monotonic()
        if self.running:
            if now - self._started_at > SETTLED_S:
                self._pause_s = FIRST_PAUSE_S
            return False
        if self._retry_at == 0.0:
            log.warning("%s (pid %s) ended with code %s: %s", self.name, self.pid, self.exit_code, self.last_line())
            self._retry_at = now + self._pause_s
            self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2)
        if now < self._retry_at:
            return False
        self._retry_at = 0.0
        self.restarts += 1
        self.start()
        log.info("%s started again, pid %s", self.name, self.pid)
        return True

    async def end(self, patience_s: float = END_PATIENCE_S) -> None:
        """SIGTERM, and SIGKILL when that was not enough."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
        if not await self.gone_within(patience_s):
            log.warning("%s (pid %d) does not end and is killed", self.name, self._process.pid)
            self._process.kill()
            await self.gone_within(patience_s)

    async def gone_within(self, patience_s: float) -> bool:
        try:
            async with asyncio.timeout(patience_s):
                while self.running:  # noqa: ASYNC110 - a process that we poll anyway
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            return False
        return True

    def last_line(self) -> str:
        lines = self._last_lines()
        return lines[-1][:500] if lines else "no word in its log"

    def last_trouble(self) -> str:
        """The last warning or error in its log's end; its last line where there is none."""
        troubles = [line for line in self._last_lines() if " ERROR " in line or " WARNING " in line]
        return troubles[-1][:500] if troubles else self.last_line()

    def _last_lines(self) -> list[str]:
        try:
            with self.log_file.open("rb") as file:
                file.seek(max(0, self.log_file.stat().st_size - 4096))
                return file.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ["no log"]


def remember(file: Path, children: Sequence[Child]) -> None:
    """Write down which processes these are, so that the next `up` can end those that a killed one left."""
    known = {}
    for child in children:
        if child.pid is not None and child.running:
            with contextlib.suppress(psutil.NoSuchProcess):
                known[child.name] = {"pid": child.pid, "started_at": started_at_s(child.pid)}
    write_atomically(file, json.dumps(known))


async def end_left_over(file: Path) -> None:
    """End what an earlier `up` started and could not end. A pid that another process has by now is left alone."""
    try:
        known = TypeAdapter(dict[str, Any]).validate_json(file.read_bytes())
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        log.warning("%s can't be read, so nothing is known of an earlier run: %s", file, error)
        return
    left: list[psutil.Process] = []
    for name, identity in known.items():
        try:
            process = psutil.Process(int(identity["pid"]))
            if not same_start(process.pid, float(identity["started_at"])) or process.pid == os.getpid():
                continue
            log.warning("ending %s (pid %d), left over from an earlier run", name, process.pid)
            process.terminate()
            left.append(process)
        except (psutil.Error, KeyError, TypeError, ValueError):
            continue
    _, alive = await asyncio.to_thread(psutil.wait_procs, left, END_PATIENCE_S)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    file.unlink(missing_ok=True)
