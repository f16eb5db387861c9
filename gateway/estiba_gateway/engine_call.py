"""One attempt to have a request answered by one engine, and the ways in which it can come to nothing.

Connections to engines are not kept: on loopback a new one costs next to nothing, and then a refused connection means
that the request was not begun, and one that breaks that it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from enum import StrEnum

import httpx

from estiba_scheduler.quantities import format_bytes, format_seconds

from .refusal import Code, Refusal
from .route_table import Route

ENGINE_HEADER = "x-estiba-engine"
HANDED_BACK_HEADER = "x-estiba-handed-back"
CONNECT_S = 2.0
WRITE_S = 30.0
ANSWER_LIMIT_BYTES = 64 * 1024 * 1024

FORWARDED_HEADERS = ("x-request-id", "traceparent", "tracestate")
NOT_PASSED_BACK = frozenset(
    (ENGINE_HEADER, "content-length", "transfer-encoding", "connection", "keep-alive", "date", "server")
)


class Why(StrEnum):
    """Why an engine did not take a request."""

    HANDED_BACK = "handed_back"
    WRONG_ENGINE = "wrong_engine"
    UNREACHABLE = "unreachable"
    BROKE_OFF = "broke_off"


class NotTaken(Exception):
    """The engine has not begun: the request may be held, or sent elsewhere, as it is."""

    def __init__(self, why: Why, detail: str) -> None:
        super().__init__(detail)
        self.why = why


class BrokeOff(Exception):
    """The connection broke after the request was sent: before any byte of an answer, or within it (`begun`)."""

    def __init__(self, detail: str, *, begun: bool) -> None:
        super().__init__(detail)
        self.begun = begun


def client(silence_s: float) -> httpx.AsyncClient:
    """`silence_s`: longest wait for the first or the next bytes of an answer."""
    return httpx.AsyncClient(
        timeout=httpx.Timeout(silence_s, connect=CONNECT_S, write=WRITE_S),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        trust_env=False,  # a proxy of the environment is not for loopback
        follow_redirects=False,
    )


@contextlib.asynccontextmanager
async def asked(
    http: httpx.AsyncClient, route: Route, path: str, body: bytes, headers: dict[str, str]
) -> AsyncIterator[httpx.Response]:
    """The engine's answer, its body not read yet. Raises NotTaken, BrokeOff, or Refusal (it is silent)."""
    sent = {
        **{name: headers[name] for name in FORWARDED_HEADERS if name in headers},
        "content-type": "application/json",
        "accept-encoding": "identity",
        "connection": "close",
        ENGINE_HEADER: route.instance,
    }
    try:
        response = await http.send(
            http.build_request("POST", route.url + path, content=body, headers=sent), stream=True
        )
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.WriteError, httpx.WriteTimeout, httpx.InvalidURL) as error:
        raise NotTaken(Why.UNREACHABLE, _told(route, error)) from error
    except httpx.ReadTimeout as error:
        raise _silent(route, http) from error
    except httpx.TransportError as error:
        raise BrokeOff(_told(route, error), begun=False) from error
    try:
        _check(route, response)
        yield response
    finally:
        await response.aclose()


def _check(route: Route, response: httpx.Response) -> None:
    """Raises NotTaken."""
    says = response.headers.get(ENGINE_HEADER, route.instance)
    if response.status_code == 421 or says != route.instance:
        raise NotTaken(Why.WRONG_ENGINE, f"{route.url} is not {route.instance} but {says[:80]}")
    if response.status_code == 503 and response.headers.get(HANDED_BACK_HEADER) == "1":
        raise NotTaken(Why.HANDED_BACK, f"{route.instance} handed the request back")


async def body_of(response: httpx.Response, route: Route, http: httpx.AsyncClient) -> bytes:
    """The whole body. Raises BrokeOff, or Refusal for one that is silent or larger than 64 MiB."""
    body = bytearray()
    async for part in parts_of(response, route, http):
        body += part
        if len(body) > ANSWER_LIMIT_BYTES:
            message = f"the engine's answer is larger than {format_bytes(ANSWER_LIMIT_BYTES)}"
            raise Refusal(502, Code.ANSWER_TOO_LARGE, message)
    return bytes(body)


async def parts_of(response: httpx.Response, route: Route, http: httpx.AsyncClient) -> AsyncIterator[bytes]:
    """The body as it comes. Raises BrokeOff, or Refusal for an engine that falls silent."""
    try:
        async for part in response.aiter_raw():
            yield part
    except httpx.ReadTimeout as error:
        raise _silent(route, http) from error
    except httpx.TransportError as error:
        raise BrokeOff(_told(route, error), begun=True) from error


def passed_back(response: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name not in NOT_PASSED_BACK}


def _silent(route: Route, http: httpx.AsyncClient) -> Refusal:
    waited = format_seconds(http.timeout.read or 0.0)
    return Refusal(504, Code.ENGINE_TIMEOUT, f"the engine {route.instance} has sent nothing for {waited}")


def _told(route: Route, error: Exception) -> str:
    return f"{route.instance} at {route.url}: {str(error) or type(error).__name__}"
