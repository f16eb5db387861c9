"""What a client is told when a request is not answered: OpenAI's error form, a code, and when to try again."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any

from starlette.responses import JSONResponse


class Code(StrEnum):
    """`error.code`. Stable: clients match on it."""

    INVALID_BODY = "invalid_body"
    BODY_TOO_LARGE = "body_too_large"
    BODY_TOO_SLOW = "body_too_slow"
    MODEL_NOT_FOUND = "model_not_found"
    MODEL_AMBIGUOUS = "model_ambiguous"  # several namespaces have one of that name
    MODEL_UNAVAILABLE = "model_unavailable"  # its deployment has a problem, or is switched off
    MODEL_NOT_READY = "model_not_ready"  # held for as long as allowed
    TOO_MANY_HELD = "too_many_requests_held"
    GATEWAY_BUSY = "gateway_busy"
    GATEWAY_STARTING = "gateway_starting"
    GATEWAY_STOPPING = "gateway_stopping"
    ENGINE_BROKE_OFF = "engine_broke_off"
    ENGINE_TIMEOUT = "engine_timeout"
    ANSWER_TOO_LARGE = "answer_too_large"
    NOT_FOUND = "not_found"
    INTERNAL = "internal_error"


TYPES = {429: "rate_limit_error", 503: "service_unavailable_error"}


class Refusal(Exception):
    """Ends a request with an error. `retry_after_s` goes out in whole seconds, rounded up."""

    def __init__(
        self,
        status: int,
        code: Code,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
        self.close = close  # the connection can't be used again: the body was not read to its end

    def document(self) -> dict[str, Any]:
        kind = TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code.value}}

    def headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        if self.retry_after_s is not None:
            headers["retry-after"] = str(max(1, math.ceil(self.retry_after_s)))
        if self.close:
            headers["connection"] = "close"
        return headers

    def response(self) -> JSONResponse:
        return JSONResponse(self.document(), self.status, self.headers())
