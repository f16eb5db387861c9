"""Control calls that are refused: a status, a stable reason and a sentence with the numbers."""

from __future__ import annotations

from enum import StrEnum

from estiba_scheduler.domain import Reason


class RefusalReason(StrEnum):
    """Reasons of the control face, beyond `estiba_scheduler.domain.Reason`."""

    LOADING = "Loading"
    STOPPING = "Stopping"
    FAILED = "Failed"
    REQUESTS_RUNNING = "RequestsRunning"
    DRAIN_CANCELLED = "DrainCancelled"
    WRONG_PHASE = "WrongPhase"
    KV_IN_USE = "KvCacheInUse"
    KV_FULL = "KvCacheFull"
    CANARY_MISMATCH = "CanaryMismatch"
    INVALID = "Invalid"
    TIMEOUT = "Timeout"
    INTERNAL = "Internal"


class Refusal(Exception):
    """A control call that is not carried out. The engine is as it was before, unless the message says otherwise."""

    def __init__(self, reason: RefusalReason | Reason, message: str, status: int = 409) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.status = status
