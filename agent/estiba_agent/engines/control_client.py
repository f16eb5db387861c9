"""The agent's side of an engine's control face: typed calls over its unix socket, each with a deadline."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
from pydantic import ValidationError

from estiba_agent.process_start import SAME_S
from estiba_scheduler.domain import ProcessIdentity, Value

from .wire import (
    BOOT_ID_HEADER,
    PID_HEADER,
    DrainRequest,
    EngineState,
    Identity,
    Measurement,
    MeasureRequest,
    ResidencyRequest,
    SleepRequest,
    WakeRequest,
)

QUICK_S = 5.0
TRANSITION_S = 300.0
MEASURE_S = 600.0

T = TypeVar("T", bound=Value)


class EngineError(Exception):
    """A control call had no good answer."""


class EngineUnreachable(EngineError):
    """The engine did not answer: not there, gone, or too slow. What was asked may have been done all the same."""


class WrongEngine(EngineError):
    """Another process answered than the one that was meant; its answer is not to be trusted."""


class EngineRefused(EngineError):
    """The engine answered that it does not do it.

    `status` is the HTTP status, `reason` a constant (`Reason` or `RefusalReason`), `message` a sentence with numbers.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{reason} ({status}): {message}")
        self.status = status
        self.reason = reason
        self.message = message


class EngineControl:
    """Calls to one engine. Each raises EngineRefused, EngineUnreachable or WrongEngine, and ends within its deadline.

    With `expect`, every call names the engine it means (another one refuses it), and every reply is checked.
    `timeout_s` bounds the quick calls (identity, state, resume, stop), `transition_s` sleep, wake and residency.
    """

    def __init__(
        self,
        socket: Path,
        expect: ProcessIdentity | None = None,
        timeout_s: float = QUICK_S,
        transition_s: float = TRANSITION_S,
    ) -> None:
        self.socket = socket
        self.expect = expect
        self._timeout_s = timeout_s
        self._transition_s = transition_s
        headers = {BOOT_ID_HEADER: expect.boot_id} if expect and expect.boot_id else {}
        self._http = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(socket)), base_url="http://engine", headers=headers, timeout=None
        )

    async def identity(self) -> Identity:
        """Who answers. With `expect`, the start time and (once both are known) the model's digest are checked too."""
        identity = await self._call("GET", "/v1/identity", Identity, self._timeout_s)
        expect = self.expect
        if expect is None:
            return identity
        if expect.started_at and abs(identity.started_at - expect.started_at) > SAME_S:
            raise WrongEngine(
                f"{self.socket}: process {identity.pid} started at {identity.started_at:.2f}, "
                f"the one meant at {expect.started_at:.2f}"
            )
        if expect.model_digest and identity.model_digest and identity.model_digest != expect.model_digest:
            raise WrongEngine(
                f"{self.socket}: the engine serves model {identity.model_digest}, not {expect.model_digest}"
            )
        return identity

    async def state(self) -> EngineState:
        return await self._call("GET", "/v1/state", EngineState, self._timeout_s)

    async def residency(self, request: ResidencyRequest, timeout_s: float | None = None) -> EngineState:
        """Change resident weights, KV cache and budget; returns when that is done."""
        return await self._call("POST", "/v1/residency", EngineState, timeout_s or self._transition_s, request)

    async def drain(self, request: DrainRequest, timeout_s: float | None = None) -> EngineState:
        """Returns when nothing runs any more, at the latest at the request's deadline."""
        deadline = timeout_s or request.deadline_s + self._timeout_s
        return await self._call("POST", "/v1/drain", EngineState, deadline, request)

    async def resume(self) -> EngineState:
        return await self._call("POST", "/v1/resume", EngineState, self._timeout_s)

    async def sleep(self, request: SleepRequest, timeout_s: float | None = None) -> EngineState:
        """Refused with 409 while requests run: drain first."""
        return await self._call("POST", "/v1/sleep", EngineState, timeout_s or self._transition_s, request)

    async def wake(self, request: WakeRequest, timeout_s: float | None = None) -> EngineState:
        """Refused with 409 and numbers where the device has no room."""
        return await self._call("POST", "/v1/wake", EngineState, timeout_s or self._transition_s, request)

    async def measure(self, request: MeasureRequest, timeout_s: float = MEASURE_S) -> Measurement:
        """Cancelling the call, or its deadline, makes the engine give up."""
        return await self._call("POST", "/v1/measure", Measurement, timeout_s, request)

    async def stop(self) -> None:
        """The engine has heard it and ends soon; watch its process."""
        await self._exchange("POST", "/v1/stop", self._timeout_s, None)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # -- inner ------------------------------------------------------------------------------------------------------

    async def _call(self, method: str, path: str, kind: type[T], timeout_s: float, body: Value | None = None) -> T:
        answer = await self._exchange(method, path, timeout_s, body)
        try:
            return kind.model_validate_json(answer.content)
        except ValidationError as error:
            raise EngineUnreachable(f"{self.socket}: {path} answered what is no {kind.__name__}: {error}") from error

    async def _exchange(self, method: str, path: str, timeout_s: float, body: Value | None) -> httpx.Response:
        content = body.model_dump_json() if body is not None else None
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._http.request(method, path, content=content)
        except TimeoutError:
            raise EngineUnreachable(f"{self.socket}: {path} did not answer within {timeout_s:.1f} s") from None
        except (httpx.HTTPError, OSError) as error:
            what = str(error) or type(error).__name__
            raise EngineUnreachable(f"{self.socket}: {path} can't be reached: {what}") from error
        self._check(answer)
        if answer.is_error:
            raise _refusal(answer)
        return answer

    def _check(self, answer: httpx.Response) -> None:
        """S4: whoever answers on this socket must be the process that was meant."""
        expect = self.expect
        if expect is None:
            return
        pid, boot_id = answer.headers.get(PID_HEADER, ""), answer.headers.get(BOOT_ID_HEADER, "")
        if (expect.pid and pid != str(expect.pid)) or (expect.boot_id and boot_id != expect.boot_id):
            raise WrongEngine(
                f"{self.socket}: process {pid or 'unknown'} (boot {boot_id or 'unknown'}) answered, "
                f"process {expect.pid} (boot {expect.boot_id or 'unknown'}) was meant"
            )


def _refusal(answer: httpx.Response) -> EngineRefused:
    try:
        error: Any = json.loads(answer.content)["error"]
        return EngineRefused(answer.status_code, str(error["reason"]), str(error["message"]))
    except (ValueError, KeyError, TypeError):
        return EngineRefused(answer.status_code, "Unknown", answer.text[:500])
