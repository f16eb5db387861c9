"""Reading requests with bounds, and what every answer of an engine carries."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_DEADLINE_S = 30.0


class BodyRefused(Exception):
    """The body is too large (413) or came too slowly (408)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


async def bounded_body(request: Request, limit_bytes: int) -> bytes:
    """The whole body. Raises BodyRefused past `limit_bytes` or when it is not there after `BODY_DEADLINE_S`."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_DEADLINE_S):
            async for part in request.stream():
                body += part
                if len(body) > limit_bytes:
                    raise BodyRefused(413, f"the request body is larger than {limit_bytes} bytes")
    except TimeoutError:
        raise BodyRefused(408, f"the request body was not complete after {BODY_DEADLINE_S:.0f} s") from None
    except ClientDisconnect:
        raise BodyRefused(400, "the client went away while it sent the request body") from None
    return bytes(body)


async def disconnected(receive: Receive) -> None:
    """Returns when the client has gone. Only once the body is read."""
    while (await receive())["type"] != "http.disconnect":
        pass


class WithHeaders:
    """Adds the same headers to every answer of an app, errors included."""

    def __init__(self, app: ASGIApp, headers: Mapping[str, str]) -> None:
        self._app = app
        self._headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *self._headers]}
            await send(message)

        await self._app(scope, receive, send_with_headers)
