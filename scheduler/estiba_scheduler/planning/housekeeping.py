"""What must go whatever the demand: instances of deleted deployments, of another model, or one too many."""

from __future__ import annotations

from ..domain import Instance, InstanceState, Reason
from .cluster import going
from .draft import Draft
from .standing import Standing
from .wording import short, size, span

OVERRUN_MARGIN_S = 30.0
"""What an agent is given beyond an instance's own deadline before the planner steps in."""


def tidy(draft: Draft) -> None:
    """Evict orphans and instances of a changed model; escalate transitions that never end; drop the surplus."""
    for instance in draft.cluster.instances:
        if going(instance) or not draft.cluster.commandable(instance):
            continue
        deployment = draft.cluster.deployments.get(instance.spec.deployment)
        if deployment is None:
            draft.evict(
                instance, Reason.DELETED, f"{short(instance.spec.deployment)} is deleted; frees {_held(instance)}"
            )
        elif deployment.id in draft.unplannable:
            continue
        elif instance.spec.model != deployment.model:
            draft.evict(
                instance,
                Reason.DELETED,
                f"the model of {short(deployment.id)} changed; the old one goes before the new one starts",
            )
        elif (late := _overrun_s(draft, instance)) is not None:
            draft.evict(
                instance,
                Reason.ESCALATED,
                f"still {instance.state} {span(late)} after its deadline; evicted so that it can start anew",
            )
    for standing in draft.plannable:
        _drop_surplus(draft, standing)


def _overrun_s(draft: Draft, instance: Instance) -> float | None:
    """Seconds by which a transition is over its deadline and margin; None where it is not, or none is going on."""
    status = instance.status
    if status is None or instance.settled:
        return None
    deadline = {
        InstanceState.STARTING: instance.spec.start_deadline_s,
        InstanceState.DRAINING: instance.spec.drain_deadline_s + instance.spec.stop_grace_s,
    }.get(status.state)
    if deadline is None:
        return None
    ends = status.state_since + deadline + OVERRUN_MARGIN_S
    draft.due(ends)
    return draft.now - status.state_since - deadline if draft.now >= ends else None


def _drop_surplus(draft: Draft, standing: Standing) -> None:
    """Beyond the replicas that may be up, the emptiest go; sleepers beside enough running replicas go too."""
    most = max(standing.wanted, 1) if standing.deployment.max_replicas else 0
    ranked = sorted(
        (i for i in standing.up if i.settled and i.id not in draft.acted),
        key=lambda i: (i.state is not InstanceState.READY, -(i.status.in_flight if i.status else 0), i.id),
    )
    spare = ranked[most:]
    if len(ranked) - len(spare) >= most:
        spare += [i for i in standing.sleepers if i.settled and i.id not in draft.acted]
    for instance in spare:
        if instance.status and instance.status.in_flight == 0 and draft.cluster.commandable(instance):
            draft.evict(
                instance,
                Reason.NO_DEMAND,
                f"one replica too many: {most} of {short(standing.id)} suffice; frees {_held(instance)}",
            )


def _held(instance: Instance) -> str:
    return size(instance.status.device_bytes if instance.status else instance.spec.budget_bytes)
