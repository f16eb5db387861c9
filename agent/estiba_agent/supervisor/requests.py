"""The body and the deadline of each control call."""

from __future__ import annotations

from estiba_agent.engines.wire import DrainRequest, ResidencyRequest, SleepRequest, WakeRequest
from estiba_scheduler.domain import InstanceSpec

from .events import CallKind
from .instructions import Body

QUICK_S = 5.0
TRANSITION_S = 120.0


def request_for(kind: CallKind, spec: InstanceSpec) -> tuple[Body, float]:
    """What to send, and the seconds after which no answer is expected any more."""
    generation = spec.generation
    sizes = {
        "resident_bytes": spec.resident_bytes,
        "kv_bytes": spec.kv_bytes,
        "budget_bytes": spec.budget_bytes,
        "generation": generation,
    }
    match kind:
        case CallKind.DRAIN:
            deadline = spec.drain_deadline_s
            return DrainRequest(deadline_s=deadline, generation=generation), deadline + QUICK_S
        case CallKind.SLEEP1:
            return SleepRequest(level=1, generation=generation), TRANSITION_S
        case CallKind.SLEEP2:
            return SleepRequest(level=2, generation=generation), TRANSITION_S
        case CallKind.WAKE:
            return WakeRequest(**sizes), spec.start_deadline_s
        case CallKind.RESIDENCY:
            return ResidencyRequest(**sizes), TRANSITION_S
        case CallKind.RESUME | CallKind.STOP:
            return None, QUICK_S
