"""The status that the world sees: facts about one instance, never what was asked for."""

from __future__ import annotations

from estiba_scheduler.domain import InstanceState, InstanceStatus, Reason
from estiba_scheduler.quantities import format_seconds

from .room import Room
from .supervised import Note, Supervised


def status_of(i: Supervised, room: Room, now: float, silent_s: float) -> InstanceStatus:
    """`silent_s`: an engine that has not answered for longer is not routed to."""
    engine, spec = i.engine, i.spec
    note = i.note
    silent = i.state is InstanceState.READY and not i.unseen and now - i.seen_at > silent_s
    if silent:
        note = Note(
            Reason.ENGINE_UNRESPONSIVE,
            f"it has not answered for {format_seconds(silent_s)}; no requests are sent to it",
        )
    failed = i.state is InstanceState.FAILED
    if failed and i.failure is not None:
        note = Note(i.failure.reason, i.failure.message)
    return InstanceStatus(
        id=spec.id,
        deployment=spec.deployment,
        node=spec.node,
        device=spec.device,
        state=i.state,
        reason=note.reason,
        message=note.message,
        observed_generation=spec.generation,
        settled_generation=i.settled_generation,
        resident_bytes=engine.resident_bytes if engine else 0,
        resident_fraction=engine.resident_fraction if engine else 0.0,
        device_bytes=_device_bytes(i, room),
        host_bytes=engine.host_bytes if engine else 0,
        kv_bytes=engine.kv_bytes if engine else 0,
        kv_used_bytes=engine.kv_used_bytes if engine else 0,
        in_flight=engine.running if engine else 0,
        waiting=engine.waiting if engine else 0,
        tpot_s=engine.tpot_s if engine else None,
        ttft_s=engine.ttft_s if engine else None,
        requests_total=engine.requests_total if engine else 0,
        tokens_total=engine.tokens_total if engine else 0,
        first_ready_at=i.first_ready_at,
        last_request_at=engine.last_request_at if engine else None,
        state_since=i.state_since,
        url=engine.url if engine and i.state is InstanceState.READY and not silent else None,
        identity=i.identity,
        offload_effective=i.offload_effective,
        failures=i.failures,
        log_tail=i.failure.log_tail if failed and i.failure else (),
        actuations_s=dict(i.actuations_s),
        reported_at=now,
    )


def _device_bytes(i: Supervised, room: Room) -> int:
    """The engine's own figure; while it loads, and after its end, what the device says (a leak shows here)."""
    seen = i.engine.device_bytes if i.engine and not i.loading else 0
    if seen:
        return seen
    holders = room.seen.holders if room.seen else None
    if holders is not None:
        if i.identity is None and i.left_at is not None and room.seen_at < i.left_at:
            return i.left_bytes
        return holders.get(i.id, 0)
    return i.left_bytes if i.left_at is not None else 0
