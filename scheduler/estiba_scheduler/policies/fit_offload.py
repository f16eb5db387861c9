"""As many layers on the device as fit into what is free, with no idea of what each costs (Ollama's partial offload).

A model that fits by offloading is loaded beside the others; only one whose least does not fit evicts. What was
offloaded once stays so until it is loaded anew.
"""

from __future__ import annotations

from ..domain import Plan, Snapshot
from ..planning.allotment import Allotment
from ..planning.candidates import Candidate
from .keep_alive import plan_with


def plan(snapshot: Snapshot, now: float) -> Plan:
    return plan_with(layers_that_fit, snapshot, now)


def layers_that_fit(candidate: Candidate, device_room: int, host_room: int) -> Allotment | None:
    """The largest residency that fits with the least KV cache; then KV cache from what is left."""
    item = candidate.item
    for option in reversed(item.options):
        room = device_room - option.base_bytes
        if room >= 0 and option.host_bytes <= host_room:
            token = max(1, item.footprint.kv_bytes_per_token)
            more = int(room / item.factor) // token * token
            return item.allot(option, max(item.kv_floor, min(item.kv_want, item.kv_floor + more)))
    return None
