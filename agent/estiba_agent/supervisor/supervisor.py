"""The supervisor's thin edge: carries out what the machine says, and tells it what happened.

One event loop, no locks. `feed` puts an event into the machine and carries out its instructions; whatever takes time
runs beside the loop and comes back as an event.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx

from estiba_agent.config import SOCKET_PATH_LIMIT
from estiba_scheduler.domain import InstanceSpec, InstanceStatus, Reason

from . import events, instructions
from .contact import Contact
from .course import Patience
from .events import Event
from .hardware import Hardware
from .instructions import Instruction
from .launch import control_socket_in, launch_of, log_file_in
from .machine import Machine
from .process import ENGINE_COMMAND, EngineProcess, find, find_started_with, launch_file_in, log_tail, start
from .record import InstanceRecord
from .shelf import Shelf

log = logging.getLogger(__name__)

INSTANCE_ID = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
MOST_INSTANCES = 256
FIRST_CONTACT_S = 5.0
SHUTDOWN_MARGIN_S = 60.0


class SpecRefused(Exception):
    """A spec that can't be taken up; `reason` is a Reason constant."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class NoRoom(Exception):
    """There is no room for a guest on the device; the message has the numbers."""


class Audience(Protocol):
    """Who hears of instances."""

    def status(self, status: InstanceStatus) -> None: ...
    def forgotten(self, instance: str) -> None: ...


class Supervisor:
    def __init__(
        self,
        node: str,
        instances_dir: Path,
        model_cache: Path,
        hardware: Hardware,
        audience: Audience,
        clock: Callable[[], float],
        poll_s: float = 0.3,
        look_s: float = 1.0,
        patience: Patience | None = None,
        engine_command: Sequence[str] = ENGINE_COMMAND,
    ) -> None:
        self._node = node
        self._shelf = Shelf(instances_dir)
        self._model_cache = model_cache
        self._hardware = hardware
        self._audience = audience
        self._clock = clock
        self._poll_s = poll_s
        self._look_s = look_s
        self._engine_command = engine_command
        self._machine = Machine(patience)
        self._events: deque[Event] = deque()
        self._feeding = False
        self._contacts: dict[str, Contact] = {}
        self._pulse_at = clock()
        self._unkept: set[str] = set()
        self._guests: dict[str, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._look_now = asyncio.Event()
        self._changed = asyncio.Event()
        self._http = httpx.AsyncClient(timeout=None)

    # -- what others ask --------------------------------------------------------------------------------------------

    def want(self, spec: InstanceSpec) -> InstanceStatus:
        """Take up desired state. Raises SpecRefused for an older generation, or what can't be."""
        self._check(spec)
        self.feed(events.SpecWanted(spec))
        return self._machine.status(spec.id, self._clock())

    def forget(self, instance: str) -> None:
        """Forget an instance that is over. Raises KeyError, or SpecRefused while it still has a process."""
        if not self._machine.forgettable(instance):
            state = self._machine.status(instance, self._clock()).state
            raise SpecRefused(
                Reason.INVALID, f"{instance} is {state}; set its desired state to Evicted and wait until it is"
            )
        self.feed(events.Forgotten(instance))

    def instances(self) -> list[tuple[InstanceSpec, InstanceStatus]]:
        found = []
        for name in self._machine.instances():
            spec = self._machine.spec(name)
            assert spec is not None
            found.append((spec, self._machine.status(name, self._clock())))
        return found

    def pulse_age_s(self) -> float:
        """Seconds since the last round."""
        return self._clock() - self._pulse_at

    def story(self, instance: str) -> list[str]:
        """Raises KeyError."""
        return self._machine.story(instance).lines()

    def leaks(self) -> dict[str, str]:
        return self._machine.leaks()

    @asynccontextmanager
    async def guest(self, owner: str, device: str, budget_bytes: int) -> AsyncIterator[Callable[[], None]]:
        """Room and a turn on a device for an engine outside supervision. Raises NoRoom.

        Waits while others start there. Yields what must be called once the engine has loaded.
        """
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._guests[owner] = admitted
        try:
            await self.look_again()  # what left a moment ago is not held against the guest
            self.feed(events.GuestWanted(owner, device, budget_bytes))
            await admitted
            yield lambda: self.feed(events.GuestStarted(owner))
        finally:
            self._guests.pop(owner, None)
            self.feed(events.GuestGone(owner))

    async def look_again(self) -> None:
        """Read the devices now, not with the next round."""
        await self._look()

    # -- life -------------------------------------------------------------------------------------------------------

    async def take_over(self) -> None:
        """Before anything else: read the devices, find the engines that an earlier agent left, and hear from them."""
        await self._look()
        for record in self._shelf.read():
            process = await asyncio.to_thread(self._find, record)
            tail = log_tail(log_file_in(self._shelf.directory(record.spec.id)))
            if process is not None:
                record = record.model_copy(update={"identity": process.identity, "spawning": False})
                log.info("%s: taking over process %d", record.spec.id, process.pid)
                self._contacts[record.spec.id] = self._contact(record.spec.id, process)
            self.feed(events.Remembered(record, process is not None, tail))
        try:
            async with asyncio.timeout(FIRST_CONTACT_S):
                await asyncio.gather(*(contact.look() for contact in list(self._contacts.values())))
        except TimeoutError:
            log.warning("not all engines answered within %.0f s; they are asked again", FIRST_CONTACT_S)
        for contact in list(self._contacts.values()):
            self._beside(self._watch(contact), f"watch {contact.instance}")

    async def run(self) -> None:
        """Until cancelled. Engines live on."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._tick(), name="tick")
                group.create_task(self._watch_devices(), name="devices")
        finally:
            for task in self._tasks:
                task.cancel()
            for contact in self._contacts.values():
                await contact.leave()
            await self._http.aclose()

    async def shut_down(self) -> None:
        """Drain and stop every engine, and forget them. Those that the system can't end are left, and named."""
        longest = max((spec.drain_deadline_s + spec.stop_grace_s for spec, _ in self.instances()), default=0.0)
        self.feed(events.ShutdownWanted())
        try:
            async with asyncio.timeout(longest + SHUTDOWN_MARGIN_S):
                while not self._machine.all_gone:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            left = [spec.id for spec, status in self.instances() if status.identity is not None]
            log.error("not ended in time, and left to the next agent: %s", ", ".join(left))
            return
        for name in self._machine.instances():
            self.feed(events.Forgotten(name))

    def feed(self, event: Event) -> None:
        """Take an event in and carry out what follows, in order, also when that makes more events."""
        self._events.append(event)
        if self._feeding:
            return
        self._feeding = True
        try:
            while self._events:
                for instruction in self._machine.handle(self._events.popleft(), self._clock()):
                    self._carry_out(instruction)
        finally:
            self._feeding = False
            self._changed.set()

    # -- carrying out -----------------------------------------------------------------------------------------------

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case instructions.Keep():
                self._keep(instruction.record)
            case instructions.StartProcess():
                self._start(instruction.spec)
            case instructions.Call():
                self._call(instruction)
            case instructions.Terminate():
                if contact := self._contacts.get(instruction.instance):
                    contact.process.terminate()
            case instructions.KillGroup():
                if contact := self._contacts.get(instruction.instance):
                    contact.process.kill_group()
            case instructions.LookAtDevices():
                self._look_now.set()
            case instructions.Report():
                self._audience.status(instruction.status)
            case instructions.AdmitGuest():
                self._answer_guest(instruction.owner, None)
            case instructions.RefuseGuest():
                self._answer_guest(instruction.owner, NoRoom(instruction.message))
            case instructions.Drop():
                self._shelf.drop(instruction.instance)
                self._unkept.discard(instruction.instance)
                self._audience.forgotten(instruction.instance)

    def _keep(self, record: InstanceRecord) -> None:
        try:
            self._shelf.keep(record)
            self._unkept.discard(record.spec.id)
        except OSError as error:
            log.error(
                "the record of %s can't be written, a restarted agent would not know it: %s", record.spec.id, error
            )
            self._unkept.add(record.spec.id)

    def _start(self, spec: InstanceSpec) -> None:
        directory = self._shelf.directory(spec.id)
        try:
            if spec.id in self._unkept:
                raise OSError(f"its record can't be written to {directory}, so an agent could start it twice")
            launch = launch_of(spec, self._hardware.place(spec.device), directory, self._model_cache)
            process = start(launch, directory, self._engine_command)
        except KeyError:
            message = f"device {spec.device} is not among the devices of this agent"
            self.feed(events.StartRefused(spec.id, Reason.NO_DEVICE, message))
            return
        except OSError as error:
            self.feed(events.StartRefused(spec.id, Reason.ENGINE_EXITED, f"no process could be started: {error}"))
            return
        log.info("%s: started process %d", spec.id, process.pid)
        contact = self._contacts[spec.id] = self._contact(spec.id, process)
        self.feed(events.ProcessStarted(spec.id, process.identity))
        self._beside(self._watch(contact), f"watch {spec.id}")

    def _call(self, call: instructions.Call) -> None:
        log.info("%s: %s", call.instance, call.kind)
        if contact := self._contacts.get(call.instance):
            contact.call(call)

    def _answer_guest(self, owner: str, problem: NoRoom | None) -> None:
        waiting = self._guests.get(owner)
        if waiting is not None and not waiting.done():
            if problem is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(problem)

    async def _watch(self, contact: Contact) -> None:
        await contact.watch()
        if self._contacts.get(contact.instance) is contact:
            del self._contacts[contact.instance]

    # -- beside -----------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            self.feed(events.Tick())
            self._pulse_at = self._clock()
            await asyncio.sleep(self._poll_s)

    async def _watch_devices(self) -> None:
        while True:
            await self._look()
            pause = self._poll_s if self._machine.memory_awaited else self._look_s
            try:
                async with asyncio.timeout(pause):
                    await self._look_now.wait()
            except TimeoutError:
                pass
            self._look_now.clear()

    async def _look(self) -> None:
        asked_at = self._clock()
        try:
            seen = await asyncio.to_thread(self._hardware.look)
        except Exception:
            # whatever a driver raises must not end supervision; the last reading stands
            log.exception("the devices could not be read")
            return
        self.feed(events.DevicesSeen(seen, asked_at))

    def _beside(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_say_if_broken)

    # -- inner ------------------------------------------------------------------------------------------------------

    def _contact(self, instance: str, process: EngineProcess) -> Contact:
        directory = self._shelf.directory(instance)
        return Contact(
            instance,
            process,
            control_socket_in(directory),
            log_file_in(directory),
            self.feed,
            self._clock,
            self._poll_s,
            self._http,
        )

    def _find(self, record: InstanceRecord) -> EngineProcess | None:
        """The process of a record: by pid and start time, or by its launch file when its pid was never written."""
        if record.identity is not None:
            return find(record.identity)
        if record.spawning:
            return find_started_with(launch_file_in(self._shelf.directory(record.spec.id)), self._engine_command)
        return None

    def _check(self, spec: InstanceSpec) -> None:
        if not INSTANCE_ID.fullmatch(spec.id):
            raise SpecRefused(
                Reason.INVALID, f"{spec.id[:80]!r} can't be an instance's id: at most 63 of a-z, 0-9, '.', '_' and '-'"
            )
        socket = control_socket_in(self._shelf.directory(spec.id))
        if len(str(socket).encode()) > SOCKET_PATH_LIMIT:
            raise SpecRefused(
                Reason.INVALID,
                f"the socket path {socket} is longer than {SOCKET_PATH_LIMIT} bytes; "
                "use a shorter id or state directory",
            )
        if spec.node != self._node:
            raise SpecRefused(Reason.INVALID, f"{spec.id} is for node {spec.node}; this is {self._node}")
        known = self._machine.spec(spec.id)
        if known is None:
            if len(self._machine.instances()) >= MOST_INSTANCES:
                raise SpecRefused(
                    Reason.INVALID, f"{MOST_INSTANCES} instances are known already; delete those that are over"
                )
            return
        if spec.generation < known.generation or (spec.generation == known.generation and spec != known):
            raise SpecRefused(
                Reason.STALE_GENERATION,
                f"generation {spec.generation} of {spec.id} came after generation {known.generation}"
                + (", with other contents" if spec.generation == known.generation else "")
                + "; read the instance and raise its generation",
            )
        for field in ("deployment", "model", "served_name", "device"):
            if getattr(spec, field) != getattr(known, field):
                raise SpecRefused(
                    Reason.INVALID, f"{spec.id} keeps its {field}; start another instance with the new one instead"
                )


def _say_if_broken(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s broke", task.get_name(), exc_info=error)
