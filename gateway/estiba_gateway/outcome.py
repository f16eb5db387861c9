"""How a request ended, for counting."""

from __future__ import annotations

from enum import StrEnum

from .refusal import Code


class Outcome(StrEnum):
    """Label values of `estiba_gateway_requests_total`."""

    ANSWERED = "answered"
    ENGINE_REFUSED = "engine_refused"  # the engine answered with an error of its own, passed on unchanged
    INVALID = "invalid"
    UNKNOWN_MODEL = "unknown_model"
    UNAVAILABLE = "unavailable"
    HOLD_TIMEOUT = "hold_timeout"
    TOO_MANY = "too_many"
    STOPPING = "stopping"
    BROKEN = "broken"
    CLIENT_GONE = "client_gone"
    INTERNAL = "internal"


OF_CODE = {
    Code.INVALID_BODY: Outcome.INVALID,
    Code.BODY_TOO_LARGE: Outcome.INVALID,
    Code.BODY_TOO_SLOW: Outcome.INVALID,
    Code.NOT_FOUND: Outcome.INVALID,
    Code.MODEL_NOT_FOUND: Outcome.UNKNOWN_MODEL,
    Code.MODEL_AMBIGUOUS: Outcome.UNKNOWN_MODEL,
    Code.MODEL_UNAVAILABLE: Outcome.UNAVAILABLE,
    Code.GATEWAY_STARTING: Outcome.UNAVAILABLE,
    Code.MODEL_NOT_READY: Outcome.HOLD_TIMEOUT,
    Code.TOO_MANY_HELD: Outcome.TOO_MANY,
    Code.GATEWAY_BUSY: Outcome.TOO_MANY,
    Code.GATEWAY_STOPPING: Outcome.STOPPING,
    Code.ENGINE_BROKE_OFF: Outcome.BROKEN,
    Code.ENGINE_TIMEOUT: Outcome.BROKEN,
    Code.ANSWER_TOO_LARGE: Outcome.BROKEN,
    Code.INTERNAL: Outcome.INTERNAL,
}
