"""When a request is handed back unanswered, for a caller to hold it or send it elsewhere."""

from __future__ import annotations

from ..wire import EnginePhase
from .request import RejectionCode


def rejection_in(phase: EnginePhase, stopping: bool) -> RejectionCode | None:
    """Why a request that arrives in `phase` is handed back; None when it is taken."""
    if stopping:
        return RejectionCode.STOPPING
    return {
        EnginePhase.READY: None,
        EnginePhase.LOADING: RejectionCode.LOADING,
        EnginePhase.DRAINING: RejectionCode.DRAINING,
        EnginePhase.DRAINED: RejectionCode.DRAINING,
        EnginePhase.ASLEEP1: RejectionCode.ASLEEP,
        EnginePhase.ASLEEP2: RejectionCode.ASLEEP,
        EnginePhase.FAILED: RejectionCode.FAILED,
    }[phase]


def handed_back_text(code: RejectionCode) -> str:
    """The sentence that goes with a handed-back request."""
    return {
        RejectionCode.LOADING: "the engine is still loading its model; the request was handed back",
        RejectionCode.DRAINING: "the engine is draining; the request was handed back",
        RejectionCode.ASLEEP: "the engine is asleep; the request was handed back",
        RejectionCode.FAILED: "the engine has failed; the request was handed back",
        RejectionCode.STOPPING: "the engine is stopping; the request was handed back",
    }[code]
