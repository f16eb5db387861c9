"""One request for an answer: read, find its model, get a route (held while there is none), forward, see it end."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httpx
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from estiba_scheduler.domain import Deployment

from .demand_meter import DemandMeter, Usage
from .engine_call import BrokeOff, NotTaken, Why, asked, body_of, parts_of, passed_back
from .event_stream import EventTooLong, PassingEvents, usage_in
from .metrics import GatewayMetrics
from .outcome import OF_CODE, Outcome
from .refusal import Code, Refusal
from .reply import Reply
from .request_body import Asked, ClientGone, read_asked, until_gone
from .switchboard import Lease, Switchboard
from .waiting_line import Ticket

log = logging.getLogger(__name__)

MET_STATE_HEADER = "x-estiba-met-state"
HELD_HEADER = "x-estiba-held-s"
INSTANCE_HEADER = "x-estiba-instance"

MOST_TRIES = 64
"""Of one request, over every engine that did not take it. The time to be held ends sooner, as a rule."""
MOST_RUNS = 2
"""Of one request that broke off without an answer: a request that kills engines must not kill one after the other."""


class Generation:
    """An ASGI app for one path: `/v1/chat/completions` or `/v1/completions`."""

    def __init__(
        self,
        board: Switchboard,
        meter: DemandMeter,
        metrics: GatewayMetrics,
        http: httpx.AsyncClient,
        *,
        max_body_bytes: int,
        client_stall_s: float,
        cut: asyncio.Event,
        explain: Callable[[str], Awaitable[str]],
        on_wrong_engine: Callable[[], None],
        look_again: Callable[[], Awaitable[bool]],
        clock: Callable[[], float],
    ) -> None:
        """`cut`: once set, what still runs ends with an error. `explain`: why a model isn't served, "" if unknown.
        `look_again`: wait for a fresh table; False where there is none."""
        self._board = board
        self._meter = meter
        self._metrics = metrics
        self._http = http
        self._max_body_bytes = max_body_bytes
        self._client_stall_s = client_stall_s
        self._cut = cut
        self._explain = explain
        self._on_wrong_engine = on_wrong_engine
        self._look_again = look_again
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        reply = Reply(send, self._client_stall_s)
        handled = _Handled()
        try:
            with self._board.place():
                body = await read_asked(request, self._max_body_bytes)
                await self._while_wanted(receive, self._serve(request, body, reply, handled))
        except ClientGone:
            handled.outcome = Outcome.CLIENT_GONE
        except Refusal as refusal:
            handled.outcome = await self._refuse(reply, refusal)
        except asyncio.CancelledError:
            handled.outcome = Outcome.CLIENT_GONE
            raise
        except Exception:
            log.exception("a request for %s failed", handled.deployment or "an unknown model")
            broken = Refusal(500, Code.INTERNAL, "internal error, see the gateway's log")
            handled.outcome = await self._refuse(reply, broken)
        finally:
            self._metrics.ended(handled.deployment, handled.outcome, handled.held_s)

    async def _refuse(self, reply: Reply, refusal: Refusal) -> Outcome:
        try:
            await reply.fail(refusal)
        except ClientGone:
            return Outcome.CLIENT_GONE
        return OF_CODE[refusal.code]

    async def _while_wanted(self, receive: Receive, work: Awaitable[None]) -> None:
        """`work`, cancelled when the client has gone (ClientGone) or the gateway may wait no longer (Refusal)."""
        working = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(until_gone(receive))
        cut = asyncio.ensure_future(self._cut.wait())
        try:
            await asyncio.wait({working, gone, cut}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            if cut.done():
                raise Refusal(503, Code.GATEWAY_STOPPING, "the gateway stopped before the answer was there")
            raise ClientGone
        finally:
            for task in (working, gone, cut):
                task.cancel()
            await asyncio.gather(working, gone, cut, return_exceptions=True)

    async def _serve(self, request: Request, body: Asked, reply: Reply, handled: _Handled) -> None:
        deployment = await self._find(body.model)
        handled.deployment = deployment.id
        self._meter.arrived(deployment.id, self._clock())
        handled.ticket = ticket = self._board.arrive(deployment.id, len(body.raw))
        path, raw, headers = request.url.path, body.for_engine(deployment.name), dict(request.headers)
        runs = 0
        for _ in range(MOST_TRIES):
            with await self._lease(ticket, reply) as lease:
                try:
                    async with asked(self._http, lease.route, path, raw, headers) as response:
                        lease.answered()
                        handled.outcome = await self._forward(response, lease, ticket, reply)
                        return
                except NotTaken as not_taken:
                    lease.refused()
                    self._again(ticket, not_taken.why, not_taken)
                except BrokeOff as broke:
                    lease.refused()
                    runs += 1
                    if broke.begun or runs >= MOST_RUNS:
                        raise _broke_off(ticket, lease, runs) from broke
                    self._again(ticket, Why.BROKE_OFF, broke)
        message = f"{MOST_TRIES} times an engine of {ticket.deployment} did not take the request"
        retry_after_s = self._board.retry_after_s(ticket.deployment)
        raise Refusal(503, Code.MODEL_NOT_READY, message, retry_after_s=retry_after_s)

    async def _find(self, model: str) -> Deployment:
        """A model that was applied a moment ago is there, although the table may not know it yet."""
        try:
            return self._board.find(model)
        except Refusal as refusal:
            if refusal.code is not Code.MODEL_NOT_FOUND or not await self._look_again():
                raise
        return self._board.find(model)

    async def _lease(self, ticket: Ticket, reply: Reply) -> Lease:
        try:
            return await self._board.lease(ticket)
        except Refusal as refusal:
            if refusal.code is Code.MODEL_NOT_READY and (why := await self._explain(ticket.deployment)):
                refusal.message += f": {why}"
            raise
        finally:
            reply.with_headers({MET_STATE_HEADER: ticket.met_state.value, HELD_HEADER: f"{ticket.held_s:.3f}"})

    def _again(self, ticket: Ticket, why: Why, error: Exception) -> None:
        """The engine did not take it, or broke off before a byte of its answer: it is held again, or goes elsewhere."""
        log.info("request %d for %s goes on to the next engine: %s", ticket.number, ticket.deployment, error)
        self._metrics.not_taken(ticket.deployment, why)
        if why is Why.WRONG_ENGINE:
            self._on_wrong_engine()

    async def _forward(self, response: httpx.Response, lease: Lease, ticket: Ticket, reply: Reply) -> Outcome:
        reply.with_headers({INSTANCE_HEADER: lease.route.instance})
        headers = passed_back(response)
        if response.status_code == 200 and headers.get("content-type", "").startswith("text/event-stream"):
            return await self._stream(response, lease, ticket, reply, headers)
        body = await body_of(response, lease.route, self._http)
        await reply.whole(response.status_code, headers, body)
        if response.status_code >= 400:
            return Outcome.ENGINE_REFUSED
        self._count(ticket, _usage(body))
        return Outcome.ANSWERED

    async def _stream(
        self, response: httpx.Response, lease: Lease, ticket: Ticket, reply: Reply, headers: dict[str, str]
    ) -> Outcome:
        await reply.begin_stream(200, headers)
        events = PassingEvents()
        try:
            async for part in parts_of(response, lease.route, self._http):
                await reply.piece(events.feed(part))
        except (BrokeOff, EventTooLong) as broke:
            if not events.complete:
                lease.refused()
                raise _broke_off(ticket, lease, 1) from broke
        self._count(ticket, events.usage)
        if not events.complete and not events.told_error:
            raise _broke_off(ticket, lease, 1)
        await reply.end()
        return Outcome.ANSWERED if events.complete else Outcome.BROKEN

    def _count(self, ticket: Ticket, usage: Usage | None) -> None:
        if usage is not None:
            self._meter.used(ticket.deployment, usage)


@dataclass(slots=True)
class _Handled:
    """What is counted at the end."""

    deployment: str | None = None
    ticket: Ticket | None = None
    outcome: Outcome = Outcome.INTERNAL

    @property
    def held_s(self) -> float:
        return self.ticket.held_s if self.ticket else 0.0


def _broke_off(ticket: Ticket, lease: Lease, runs: int) -> Refusal:
    times = "" if runs < 2 else f", as {runs - 1} before it did"
    message = f"the engine {lease.route.instance} of {ticket.deployment} broke off before its answer was whole{times}"
    return Refusal(502, Code.ENGINE_BROKE_OFF, message)


def _usage(body: bytes) -> Usage | None:
    try:
        document = json.loads(body)
    except ValueError:
        return None
    return usage_in(document) if isinstance(document, dict) else None
