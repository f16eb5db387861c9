"""One engine as the supervisor's edge deals with it: its process is watched, its state asked for, its calls made."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import httpx

from estiba_agent.engines.control_client import EngineControl, EngineRefused, EngineUnreachable, WrongEngine
from estiba_agent.engines.wire import (
    DrainRequest,
    EnginePhase,
    EngineState,
    ResidencyRequest,
    SleepRequest,
    WakeRequest,
)
from estiba_scheduler.domain import ProcessIdentity

from . import events
from .events import CallKind, Event, Trouble
from .instructions import Call
from .process import EngineProcess, log_tail

log = logging.getLogger(__name__)

Feed = Callable[[Event], None]

LOADING_POLL_S = 0.1
PROBE_AGAIN_S = 5.0
PROBE_TIMEOUT_S = 5.0


class Contact:
    """Watches one process until its end. All that is seen goes to `feed`, with the supervisor's clock."""

    def __init__(
        self,
        instance: str,
        process: EngineProcess,
        socket: Path,
        log_file: Path,
        feed: Feed,
        clock: Callable[[], float],
        poll_s: float,
        http: httpx.AsyncClient,
    ) -> None:
        self.instance = instance
        self.process = process
        self._socket = socket
        self._log_file = log_file
        self._feed = feed
        self._clock = clock
        self._poll_s = poll_s
        self._http = http
        self._known = False
        self._digest = ""
        self._control = EngineControl(socket, process.identity)
        self._phase: EnginePhase | None = None
        self._probed: tuple[str, float] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def watch(self) -> None:
        """Until the process has ended."""
        while True:
            exit_ = self.process.exited()
            if exit_ is not None:
                break
            await self.look()
            loading = self._phase in (None, EnginePhase.LOADING)
            await asyncio.sleep(min(LOADING_POLL_S, self._poll_s) if loading else self._poll_s)
        for task in self._tasks:
            task.cancel()
        await self._control.aclose()
        self._feed(events.ProcessExited(self.instance, exit_.code, log_tail(self._log_file)))

    async def look(self) -> None:
        """Ask who it is, once, and what its state is."""
        asked_at = self._clock()
        try:
            if not self._known:
                await self._make_acquaintance()
            state = await self._control.state()
            if state.phase is EnginePhase.READY and not self._digest:
                await self._make_acquaintance()  # only now it knows its model's digest
        except WrongEngine as error:
            self._feed(events.WrongEngineSeen(self.instance, str(error)))
            return
        except (EngineUnreachable, EngineRefused) as error:
            log.debug("%s: %s", self.instance, error)
            return
        self._phase = state.phase
        self._feed(events.EngineStateSeen(self.instance, state, asked_at, await self._serves(state)))

    def call(self, call: Call) -> None:
        """Make a call beside everything else; its outcome comes as an event."""
        task = asyncio.create_task(self._call(call), name=f"{self.instance}: {call.kind}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def leave(self) -> None:
        """Stop dealing with it; the engine lives on."""
        for task in self._tasks:
            task.cancel()
        await self._control.aclose()

    # -- inner ------------------------------------------------------------------------------------------------------

    async def _make_acquaintance(self) -> None:
        identity = await self._control.identity()
        if identity.instance != self.instance or identity.pid != self.process.pid:
            raise WrongEngine(
                f"{self._socket}: process {identity.pid} answered for {identity.instance}; "
                f"process {self.process.pid} of {self.instance} was meant"
            )
        known = ProcessIdentity(
            pid=identity.pid,
            started_at=self.process.identity.started_at,
            model_digest=identity.model_digest,
            boot_id=identity.boot_id,
        )
        if not self._known:
            await self._control.aclose()
            self._control = EngineControl(self._socket, known)
        self._known, self._digest = True, identity.model_digest
        self._feed(events.EngineAppeared(self.instance, known))

    async def _call(self, call: Call) -> None:
        number, name = call.number, self.instance
        try:
            state = await self._exchange(call)
            serves = state is not None and await self._serves(state)
            self._feed(events.EngineCallDone(name, number, state, serves))
        except EngineRefused as error:
            self._feed(events.EngineCallFailed(name, number, Trouble.REFUSED, error.reason, error.message))
        except EngineUnreachable as error:
            self._feed(events.EngineCallFailed(name, number, Trouble.UNREACHABLE, "", str(error)))
        except WrongEngine as error:
            self._feed(events.EngineCallFailed(name, number, Trouble.WRONG_ENGINE, "", str(error)))

    async def _exchange(self, call: Call) -> EngineState | None:
        control, deadline = self._control, call.deadline_s
        match call.body:
            case DrainRequest():
                return await control.drain(call.body, deadline)
            case SleepRequest():
                return await control.sleep(call.body, deadline)
            case WakeRequest():
                return await control.wake(call.body, deadline)
            case ResidencyRequest():
                return await control.residency(call.body, deadline)
        if call.kind is CallKind.RESUME:
            return await control.resume()
        assert call.kind is CallKind.STOP, f"a {call.kind} call needs a body"
        await control.stop()
        return None

    async def _serves(self, state: EngineState) -> bool:
        """Its OpenAI endpoint answers as this instance. Asked anew after every absence, and now and then."""
        if state.phase is not EnginePhase.READY or state.url is None:
            self._probed = None
            return False
        now = self._clock()
        if self._probed and self._probed[0] == state.url and now - self._probed[1] < PROBE_AGAIN_S:
            return True
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                answer = await self._http.get(f"{state.url}/v1/models")
        except (httpx.HTTPError, OSError, TimeoutError) as error:
            log.info("%s: %s does not answer: %s", self.instance, state.url, error or type(error).__name__)
            self._probed = None
            return False
        serves = answer.is_success and answer.headers.get("x-estiba-engine", self.instance) == self.instance
        self._probed = (state.url, now) if serves else None
        return serves
