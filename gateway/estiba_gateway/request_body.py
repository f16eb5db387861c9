"""Reading a client's request: bounded, and only as far as the gateway needs it (the model's name)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from estiba_scheduler.quantities import format_bytes

from .refusal import Code, Refusal

BODY_DEADLINE_S = 30.0
DISCARDED_BYTES = 64 * 1024 * 1024
"""So much more of a body that is too large is still read, so that its sender gets to read the answer."""
LONGEST_NAME = 512


class ClientGone(Exception):
    """The client closed its connection: nobody reads an answer."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came. `raw` is kept until an engine begins to answer."""

    raw: bytes
    fields: dict[str, Any]

    @property
    def model(self) -> str:
        return str(self.fields["model"])

    def for_engine(self, served_name: str) -> bytes:
        """Untouched, unless the client used another name for the model than its engine does."""
        if self.model == served_name:
            return self.raw
        return json.dumps({**self.fields, "model": served_name}, ensure_ascii=False).encode()


async def read_asked(request: Request, limit_bytes: int) -> Asked:
    """Raises Refusal (400, 408, 413) or ClientGone."""
    raw = await _bounded(request, limit_bytes)
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _invalid(f"the body is not JSON: {str(error)[:200]}") from None
    if not isinstance(fields, dict):
        raise _invalid(f"the body must be a JSON object, not {type(fields).__name__}")
    model = fields.get("model")
    if not isinstance(model, str) or not model.strip():
        raise _invalid('"model" must be the name of a model; GET /v1/models lists them', "model")
    if len(model) > LONGEST_NAME:
        raise _invalid(f'"model" is longer than {LONGEST_NAME} characters', "model")
    return Asked(raw, fields)


async def until_gone(receive: Receive) -> None:
    """Returns when the client has closed its connection. Only once the body is read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _bounded(request: Request, limit_bytes: int) -> bytes:
    body = bytearray()
    length = 0
    try:
        async with asyncio.timeout(BODY_DEADLINE_S):
            async for part in request.stream():
                length += len(part)
                if length <= limit_bytes:
                    body += part
                elif length > limit_bytes + DISCARDED_BYTES:
                    raise _too_large(limit_bytes, close=True)
    except TimeoutError:
        message = f"the request body was not complete after {BODY_DEADLINE_S:.0f} s"
        raise Refusal(408, Code.BODY_TOO_SLOW, message, close=True) from None
    except ClientDisconnect:
        raise ClientGone from None
    if length > limit_bytes:
        raise _too_large(limit_bytes)
    return bytes(body)


def _too_large(limit_bytes: int, close: bool = False) -> Refusal:
    return Refusal(
        413, Code.BODY_TOO_LARGE, f"the request body is larger than {format_bytes(limit_bytes)}", close=close
    )


def _invalid(message: str, param: str | None = None) -> Refusal:
    return Refusal(400, Code.INVALID_BODY, message, param=param)
