"""Least recently used with a fixed keep-alive and no offload (llama-swap; Ollama where models fit)."""

from __future__ import annotations

from dataclasses import replace

from ..domain import Plan, Snapshot
from ..planning.allotment import Allotment
from ..planning.candidates import Candidate
from ..planning.residency import Shortage, divide
from .keep_alive import plan_with


def plan(snapshot: Snapshot, now: float) -> Plan:
    return plan_with(whole_model, snapshot, now)


def whole_model(candidate: Candidate, device_room: int, host_room: int) -> Allotment | None:
    """All weights on the device, and of the KV cache wanted what fits beside them."""
    item = replace(candidate.item, options=candidate.item.options[-1:])
    given = divide([item], device_room, host_room)
    return None if isinstance(given, Shortage) else given[item.key]
