"""The control face of an engine: the call table of `engines/wire.py`, over the engine's unix socket."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from estiba_scheduler.domain import Reason, Value

from ..wire import (
    BOOT_ID_HEADER,
    PID_HEADER,
    DrainRequest,
    EngineState,
    Identity,
    MeasureRequest,
    ResidencyRequest,
    SleepRequest,
    WakeRequest,
)
from .engine_loop import EngineLoop
from .http_body import BodyRefused, WithHeaders, bounded_body, disconnected
from .refusal import Refusal, RefusalReason

log = logging.getLogger(__name__)

BODY_LIMIT_BYTES = 64 * 1024
CALL_DEADLINE_S = 900.0
"""For a call that the engine's thread carries out; a drain has its own deadline on top."""

STATE_PATIENCE_S = 0.5
"""The state is asked of the engine's thread; when that is busy for longer, the latest known state is the answer."""

T = TypeVar("T")
Body = TypeVar("Body", bound=BaseModel)
Handler = Callable[[Request], Awaitable[Response]]


class ControlFace:
    """Answers the agent. `identity` says who this is; `stop` is called (once or more) to end the process."""

    def __init__(self, engine: EngineLoop, identity: Callable[[], Identity], stop: Callable[[], None]) -> None:
        self._engine = engine
        self._identity = identity
        self._stop = stop

    def app(self) -> WithHeaders:
        calls: dict[tuple[str, str], Handler] = {
            ("GET", "/v1/identity"): self._get_identity,
            ("GET", "/v1/state"): self._get_state,
            ("POST", "/v1/residency"): self._residency,
            ("POST", "/v1/drain"): self._drain,
            ("POST", "/v1/resume"): self._resume,
            ("POST", "/v1/sleep"): self._sleep,
            ("POST", "/v1/wake"): self._wake,
            ("POST", "/v1/measure"): self._measure,
            ("POST", "/v1/stop"): self._post_stop,
        }
        routes = [Route(path, self._guarded(handle), methods=[method]) for (method, path), handle in calls.items()]
        app = Starlette(routes=routes, exception_handlers={404: _no_such_call, 405: _no_such_call})
        identity = self._identity()
        return WithHeaders(app, {BOOT_ID_HEADER: identity.boot_id, PID_HEADER: str(identity.pid)})

    # -- calls ------------------------------------------------------------------------------------------------------

    async def _get_identity(self, request: Request) -> Response:
        return _document(self._identity())

    async def _get_state(self, request: Request) -> Response:
        try:
            state = await _within(self._engine.fresh_state(), STATE_PATIENCE_S)
        except (TimeoutError, Refusal):
            state = self._engine.state()
        return _document(state)

    async def _residency(self, request: Request) -> Response:
        body = await _read(request, ResidencyRequest)
        return await self._call(self._engine.call(lambda lifecycle: lifecycle.residency(body)))

    async def _drain(self, request: Request) -> Response:
        body = await _read(request, DrainRequest)
        return await self._call(self._engine.drain(body), CALL_DEADLINE_S + body.deadline_s)

    async def _resume(self, request: Request) -> Response:
        return await self._call(self._engine.call(lambda lifecycle: lifecycle.resume()))

    async def _sleep(self, request: Request) -> Response:
        body = await _read(request, SleepRequest)
        return await self._call(self._engine.call(lambda lifecycle: lifecycle.sleep(body)))

    async def _wake(self, request: Request) -> Response:
        body = await _read(request, WakeRequest)
        return await self._call(self._engine.call(lambda lifecycle: lifecycle.wake(body)))

    async def _measure(self, request: Request) -> Response:
        """Given up when the caller goes away: nobody would read the figures."""
        body = await _read(request, MeasureRequest)
        given_up = threading.Event()
        gone = asyncio.ensure_future(disconnected(request.receive))
        gone.add_done_callback(lambda _: given_up.set())
        try:
            measured = await _within(self._engine.measure(body, given_up), CALL_DEADLINE_S)
            return _document(measured)
        except TimeoutError:
            raise Refusal(RefusalReason.TIMEOUT, f"not measured after {CALL_DEADLINE_S:.0f} s", 504) from None
        finally:
            gone.cancel()  # gives up as well, which no longer matters

    async def _post_stop(self, request: Request) -> Response:
        self._stop()
        return JSONResponse({"stopping": True}, 202)

    async def _call(self, reply: Future[EngineState], deadline_s: float = CALL_DEADLINE_S) -> Response:
        try:
            state = await _within(reply, deadline_s)
            return _document(state)
        except TimeoutError:
            raise Refusal(
                RefusalReason.TIMEOUT,
                f"not carried out after {deadline_s:.0f} s; it may still be: ask for the state",
                504,
            ) from None

    # -- around every call ------------------------------------------------------------------------------------------

    def _guarded(self, handle: Handler) -> Handler:
        """Fence by boot id, and answer whatever goes wrong in the form of `wire.py`."""

        async def handler(request: Request) -> Response:
            try:
                self._fence(request)
                return await handle(request)
            except Refusal as refusal:
                return _error(refusal.status, refusal.reason.value, refusal.message)
            except BodyRefused as refused:
                return _error(refused.status, RefusalReason.INVALID.value, refused.message)
            except ValidationError as error:
                problems = "; ".join(
                    f"{'.'.join(str(part) for part in p['loc']) or 'body'}: {p['msg']}" for p in error.errors()[:5]
                )
                return _error(422, RefusalReason.INVALID.value, problems)
            except Exception as error:
                log.exception("a control call failed")
                return _error(500, RefusalReason.INTERNAL.value, f"{type(error).__name__}: {error}; see the log")

        return handler

    def _fence(self, request: Request) -> None:
        """A caller may name the engine it means; a command for another one is not carried out."""
        meant, own = request.headers.get(BOOT_ID_HEADER), self._identity()
        if meant is not None and meant != own.boot_id:
            raise Refusal(
                Reason.IDENTITY_MISMATCH,
                f"this is {own.instance} with boot id {own.boot_id}, process {own.pid}; "
                f"the call was meant for the engine with boot id {meant[:64]}",
                421,
            )


async def _read(request: Request, kind: type[Body]) -> Body:
    return kind.model_validate_json(await bounded_body(request, BODY_LIMIT_BYTES))


async def _within(reply: Future[T], deadline_s: float) -> T:
    async with asyncio.timeout(deadline_s):
        return await asyncio.wrap_future(reply)


def _document(value: Value) -> Response:
    return Response(value.model_dump_json(), media_type="application/json")


def _error(status: int, reason: str, message: str) -> Response:
    return JSONResponse({"error": {"reason": reason, "message": message}}, status)


async def _no_such_call(request: Request, error: Exception) -> Response:
    return _error(
        getattr(error, "status_code", 404), RefusalReason.INVALID.value, f"no call {request.method} {request.url.path}"
    )
