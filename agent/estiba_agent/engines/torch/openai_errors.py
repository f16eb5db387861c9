"""Errors in OpenAI's form: `{"error": {"message", "type", "param", "code"}}` with the status that goes with them."""

from __future__ import annotations

import re
from typing import Any

from pydantic import ValidationError
from starlette.responses import JSONResponse

from .request import Rejected, RejectionCode

HANDED_BACK = "x-estiba-handed-back"
"""Header of a 503: the request was not begun; hold it, or send it to another engine."""


class OpenAIError(Exception):
    """What a caller is told. `handed_back` marks a request that may be sent again elsewhere as it is."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        param: str | None = None,
        *,
        handed_back: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.handed_back = handed_back

    def document(self) -> dict[str, Any]:
        kind = {429: "rate_limit_error", 503: "service_unavailable_error"}.get(
            self.status, "invalid_request_error" if self.status < 500 else "server_error"
        )
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        headers: dict[str, str] = {}
        if self.handed_back:
            headers[HANDED_BACK] = "1"
        if self.status in (429, 503):
            headers["retry-after"] = "1"
        return JSONResponse(self.document(), self.status, headers)


def rejected(event: Rejected) -> OpenAIError:
    """The error for a request that the engine did not finish."""
    if event.code is RejectionCode.CONTEXT_LENGTH:
        return OpenAIError(400, event.message, event.code.value, "messages")
    if event.code is RejectionCode.QUEUE_FULL:
        return OpenAIError(429, event.message, event.code.value)
    if event.code is RejectionCode.INTERNAL:
        return OpenAIError(500, event.message, event.code.value)
    return OpenAIError(503, event.message, event.code.value, handed_back=True)


def invalid(error: ValidationError) -> OpenAIError:
    """A body that doesn't fit: the first few problems, with the path of each."""
    problems = error.errors(include_url=False, include_context=False)
    told: list[str] = []
    for problem in problems[:3]:
        path = ".".join(str(part) for part in problem["loc"])
        text = problem["msg"].removeprefix("Value error, ")
        told.append(f"{path}: {text}" if path else text)
    # our own checks of a whole body begin their sentence with the field's name
    first = str(problems[0]["loc"][0]) if problems[0]["loc"] else re.split(r"\W", told[0], maxsplit=1)[0]
    return OpenAIError(400, "; ".join(told), "invalid_value", first)
