"""One planning pass: a snapshot in, a plan out. Pure: the same snapshot and time give the same plan."""

from __future__ import annotations

from ..domain import Plan, Reason, Snapshot
from .draft import Draft
from .failures import recover
from .housekeeping import tidy
from .idleness import rest
from .overcommitment import give_back
from .placement import place, review_reservations
from .rebalance import rebalance
from .rungs import LOWEST_RUNGS
from .verdicts import report
from .wording import short


def plan(snapshot: Snapshot, now: float) -> Plan:
    """Decide what to do now. `now` is in seconds since the epoch, as everything in the snapshot.

    Level-triggered: call it on every event and about once a second; it asks for nothing that is already on its way.
    The returned `memory` belongs into the next snapshot.
    """
    draft = Draft(snapshot, now)
    set_aside(draft)
    review_reservations(draft)
    tidy(draft)
    recover(draft)
    give_back(draft)
    rest(draft)
    place(draft)
    rebalance(draft)
    report(draft)
    return draft.finish()


def set_aside(draft: Draft) -> None:
    """Deployments that can't be planned are named and left alone; the others go on."""
    for deployment in draft.cluster.deployments.values():
        if deployment.problem:
            draft.unplannable.add(deployment.id)
            draft.say(deployment.id, Reason.INVALID, deployment.problem)
        elif deployment.policies.lowest_rung not in LOWEST_RUNGS:
            draft.unplannable.add(deployment.id)
            draft.say(
                deployment.id,
                Reason.INVALID,
                f"policies.lowest_rung is {deployment.policies.lowest_rung!r}; write one of {', '.join(LOWEST_RUNGS)}",
            )
        elif deployment.min_replicas > deployment.max_replicas:
            draft.unplannable.add(deployment.id)
            draft.say(
                deployment.id,
                Reason.INVALID,
                f"min_replicas {deployment.min_replicas} is above max_replicas {deployment.max_replicas}",
            )
        elif draft.cluster.any_profile(deployment.id) is None:
            draft.unplannable.add(deployment.id)
            if deployment.id in draft.cluster.snapshot.profiling:
                draft.say(deployment.id, Reason.PROFILING, f"{short(deployment.id)} is being measured")
            else:
                draft.say(deployment.id, Reason.UNPROFILED, f"nothing is known of what {short(deployment.id)} needs")
