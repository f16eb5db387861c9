"""From an action to the new desired state of an instance."""

from __future__ import annotations

from ..domain import Action, ActionKind, Deployment, DesiredState, Instance, InstanceSpec

SLEEPS = {1: DesiredState.ASLEEP1, 2: DesiredState.ASLEEP2}


def started(action: Action, deployment: Deployment, instance_id: str) -> InstanceSpec:
    """The first spec of a new instance."""
    return InstanceSpec(
        id=instance_id,
        deployment=deployment.id,
        model=deployment.model,
        served_name=deployment.name,
        node=action.node,
        device=action.device,
        resident_bytes=action.resident_bytes,
        kv_bytes=action.kv_bytes,
        budget_bytes=action.budget_bytes,
        start_deadline_s=action.start_deadline_s,
        generation=1,
        reason=action.reason,
        message=action.message,
    )


def changed(action: Action, instance: Instance) -> InstanceSpec:
    """The next spec of a known instance. Put away, it keeps the bytes that it had. Raises ValueError for Migrate."""
    spec = instance.spec
    new: dict[str, object] = {
        "generation": spec.generation + 1,
        "reason": action.reason,
        "message": action.message,
    }
    if action.kind in (ActionKind.RESIZE, ActionKind.WAKE):
        new |= {
            "desired": DesiredState.RUNNING,
            "resident_bytes": action.resident_bytes,
            "kv_bytes": action.kv_bytes,
            "budget_bytes": action.budget_bytes,
        }
        if action.kind is ActionKind.WAKE:
            new["start_deadline_s"] = action.start_deadline_s
    elif action.kind is ActionKind.SLEEP:
        if action.level not in SLEEPS:
            raise ValueError(f"sleep level {action.level} is not known; there are 1 and 2")
        new["desired"] = SLEEPS[action.level]
    elif action.kind is ActionKind.EVICT:
        new["desired"] = DesiredState.EVICTED
    else:
        raise ValueError(f"{action.kind} is not one change of one instance")
    return InstanceSpec.model_validate(spec.model_dump() | new)
