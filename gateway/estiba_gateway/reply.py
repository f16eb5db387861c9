"""The answer on its way to a client. Whatever happens, it gets an end: a whole document, or an error event."""

from __future__ import annotations

import asyncio
import json

from starlette.types import Send

from .event_stream import error_event
from .refusal import Refusal
from .request_body import ClientGone


class Reply:
    """`stall_s`: a client that takes nothing for so long counts as gone (ClientGone)."""

    def __init__(self, send: Send, stall_s: float) -> None:
        self._send = send
        self._stall_s = stall_s
        self._headers: dict[str, str] = {}
        self._started = False
        self._ended = False
        self._streams = False

    @property
    def started(self) -> bool:
        return self._started

    def with_headers(self, headers: dict[str, str]) -> None:
        """Added to the answer, whatever it will be."""
        self._headers.update(headers)

    async def whole(self, status: int, headers: dict[str, str], body: bytes) -> None:
        await self._start(status, {**headers, "content-length": str(len(body))})
        await self._put(body, more=False)

    async def begin_stream(self, status: int, headers: dict[str, str]) -> None:
        self._streams = True
        await self._start(status, headers)

    async def piece(self, data: bytes) -> None:
        if data:
            await self._put(data, more=True)

    async def end(self) -> None:
        await self._put(b"", more=False)

    async def fail(self, refusal: Refusal) -> None:
        """As a document with its status, or as the last event of a stream that has begun."""
        if self._ended:
            return
        if not self._started:
            body = json.dumps(refusal.document(), ensure_ascii=False).encode()
            await self.whole(refusal.status, {"content-type": "application/json", **refusal.headers()}, body)
        elif self._streams:
            await self._put(error_event(refusal.document()), more=False)

    async def _start(self, status: int, headers: dict[str, str]) -> None:
        self._started = True
        raw = [(k.encode("latin-1"), v.encode("latin-1")) for k, v in {**headers, **self._headers}.items()]
        await self._out({"type": "http.response.start", "status": status, "headers": raw})

    async def _put(self, data: bytes, *, more: bool) -> None:
        self._ended = not more
        await self._out({"type": "http.response.body", "body": data, "more_body": more})

    async def _out(self, message: dict[str, object]) -> None:
        try:
            async with asyncio.timeout(self._stall_s):
                await self._send(message)
        except TimeoutError:
            raise ClientGone from None
