"""Engine processes: start one in its own session, find one again, see its end, end it with its whole group."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from estiba_agent.engines.wire import EngineLaunch
from estiba_agent.process_start import same_start, started_at_s
from estiba_scheduler.domain import ProcessIdentity

log = logging.getLogger(__name__)

ENGINE_COMMAND = (sys.executable, "-m", "estiba_agent.engines.torch")
TAIL_LINES = 20
TAIL_BYTES = 16 * 1024
LINE_LIMIT = 500


@dataclass(frozen=True, slots=True)
class Exit:
    """`code` as `subprocess` has it (negative: a signal); None where nobody could wait for it."""

    code: int | None


class EngineProcess:
    """One process that leads its own session. Only ever signalled after a look at who has its pid now."""

    def __init__(self, identity: ProcessIdentity, child: subprocess.Popen[bytes] | None = None) -> None:
        self.identity = identity
        self._child = child
        self._exit: Exit | None = None

    @property
    def pid(self) -> int:
        return self.identity.pid

    def exited(self) -> Exit | None:
        """None while it runs. What is left of its group is killed when it has ended: it may hold device memory."""
        if self._exit is None:
            self._exit = self._reap() if self._child else self._look()
        return self._exit

    def terminate(self) -> None:
        """SIGTERM to the process itself."""
        if self.exited() is None:
            _signal(self.pid, signal.SIGTERM)

    def kill_group(self) -> None:
        """SIGKILL to the process and everything that it started and that stayed in its group."""
        if self.exited() is None:
            _signal_group(self.pid)

    def _reap(self) -> Exit | None:
        assert self._child is not None
        if self._child.returncode is None:
            # seen before it is reaped: until then nobody else can be given its pid or its group
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return None
            _signal_group(self.pid)
        return Exit(self._child.wait())

    def _look(self) -> Exit | None:
        if _alive(self.identity):
            return None
        if not psutil.pid_exists(self.pid):
            # a group's number is not given out again while it has members, so these are its own
            _signal_group(self.pid)
        return Exit(None)


def start(launch: EngineLaunch, directory: Path, command: Sequence[str] = ENGINE_COMMAND) -> EngineProcess:
    """Write the launch file into `directory` and start the engine. Raises OSError when the system refuses."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    launch_file = launch_file_in(directory)
    write_atomically(launch_file, launch.model_dump_json(indent=1))
    with launch.log_file.open("ab") as output:
        child = subprocess.Popen(
            [*command, str(launch_file)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=directory,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": str(launch.compute_threads)},
        )
    return EngineProcess(ProcessIdentity(pid=child.pid, started_at=_started_at(child.pid)), child)


def launch_file_in(directory: Path) -> Path:
    return directory / "launch.json"


def find(identity: ProcessIdentity) -> EngineProcess | None:
    """The very process: pid and start time. A reused pid is another process."""
    return EngineProcess(identity) if _alive(identity) else None


def find_started_with(launch_file: Path, command: Sequence[str] = ENGINE_COMMAND) -> EngineProcess | None:
    """A process whose agent was killed before it could write down the pid; told by its command line.

    The whole of it but the interpreter, so that an editor that has the file open is not taken for the engine.
    """
    arguments = [*command[1:], str(launch_file)]
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = process.cmdline()
            if line[1:] == arguments and process.status() != psutil.STATUS_ZOMBIE:
                return EngineProcess(ProcessIdentity(pid=process.pid, started_at=started_at_s(process.pid)))
    return None


def log_tail(log_file: Path, lines: int = TAIL_LINES) -> tuple[str, ...]:
    """The last lines that an engine wrote, whatever happened to the file."""
    found: list[str] = []
    for file in (log_file, log_file.with_name(log_file.name + ".1")):
        try:
            with file.open("rb") as stream:
                stream.seek(max(0, file.stat().st_size - TAIL_BYTES))
                text = stream.read(TAIL_BYTES).decode(errors="replace")
        except OSError:
            continue
        found = [line[:LINE_LIMIT] for line in text.splitlines() if line.strip()] + found
        if len(found) >= lines:
            break
    return tuple(found[-lines:])


def write_atomically(path: Path, text: str) -> None:
    """All or nothing, also when the machine stops meanwhile. Raises OSError."""
    part = path.with_name(f".{path.name}.part")
    with part.open("w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)


def _started_at(pid: int) -> float:
    try:
        return started_at_s(pid)
    except psutil.Error:
        return 0.0  # gone already: its exit is seen at the next look


def _alive(identity: ProcessIdentity) -> bool:
    try:
        if not same_start(identity.pid, identity.started_at):
            return False
        return psutil.Process(identity.pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _signal_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
    except PermissionError as error:
        log.error("process group %d can't be killed: %s", group, error)
