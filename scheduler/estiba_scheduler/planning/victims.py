"""Who on a device could yield to a waiting deployment, how, at what cost, and who may not."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

from ..domain import Instance, PreemptionMode, Reason, Rung
from ..prediction import quantum_s
from .allotment import Item, appraiser, item_for
from .candidates import Candidate
from .cluster import failed, going, rung_of, serving, sleeping
from .draft import Draft
from .rungs import LADDER, PutAway, allowed, put_away
from .standing import HORIZON_S, Standing

HASTE = 0.1
"""Part of the minimum residency that holds against a deployment of strictly higher priority."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An instance in the way."""

    instance: Instance
    standing: Standing | None
    item: Item | None  # None: its residency can't be changed now
    ways: tuple[PutAway, ...]  # how it may be put away; empty where `blocked`
    blocked: Reason | None  # why it is no victim
    until: float | None  # when that may change
    loss: float  # weighted seconds it loses per second as it is
    frees_here: bool

    @property
    def id(self) -> str:
        return self.instance.id

    @property
    def worth(self) -> float:
        """Weighted requests per second."""
        return self.standing.weight * self.standing.rate_per_s if self.standing else 0.0

    @property
    def name(self) -> str:
        return self.instance.spec.deployment


def neighbours(draft: Draft, waiting: Standing, candidate: Candidate) -> list[Neighbour]:
    """Every instance on the device, and every sleeper of the node for the host memory it holds."""
    found = []
    for instance in draft.cluster.instances:
        here = instance.spec.device == candidate.device.uuid
        if instance.id in candidate.own or going(instance):
            continue
        if here or (instance.spec.node == candidate.device.node and sleeping(instance)):
            found.append(_neighbour(draft, waiting, instance, here))
    return found


def _neighbour(draft: Draft, waiting: Standing, instance: Instance, here: bool) -> Neighbour:
    standing = draft.standings.get(instance.spec.deployment)
    device = draft.cluster.devices.get(instance.spec.device)
    untouchable = Neighbour(instance, standing, None, (), Reason.WAITING_FOR_ROOM, None, 0.0, here)
    settled = instance.settled and instance.id not in draft.acted and draft.cluster.commandable(instance)
    if standing is None or standing.id in draft.unplannable or device is None or failed(instance) or not settled:
        return untouchable
    profile = draft.profile(standing, device.uuid)
    if profile is None:
        return untouchable
    item, loss = None, 0.0
    if serving(instance):
        rivals = [*draft.rivals(device), waiting]
        status = instance.status
        appraise = appraiser(draft.cluster, standing, device, rivals)
        if appraise is not None and status is not None:
            loss = appraise.loss(appraise.tpot_s(status.resident_bytes))
        if status is not None and status.offload_effective is not False:
            item = item_for(draft.cluster, draft.ledger, standing, device, rivals, instance)
        rungs = allowed(standing.deployment, profile)
    elif sleeping(instance):
        deeper = LADDER[LADDER.index(rung_of(instance)) + 1 :]
        rungs = tuple(r for r in allowed(standing.deployment, profile) if r in deeper and r is Rung.COLD)
    else:
        return untouchable
    blocked, until = _objection(draft, waiting, standing, instance, rungs)
    ways = () if blocked else tuple(put_away(profile, r) for r in rungs)
    return Neighbour(instance, standing, item, ways, blocked, until, loss, here)


def _objection(
    draft: Draft, waiting: Standing, standing: Standing, instance: Instance, rungs: tuple[Rung, ...]
) -> tuple[Reason | None, float | None]:
    """Why an instance may not be put away for the waiting deployment, and until when."""
    deployment = standing.deployment
    if deployment.policies.preemption is PreemptionMode.NEVER or not rungs:
        return Reason.ALL_PINNED, None
    if standing.id == waiting.id:
        return Reason.WAITING_FOR_ROOM, None
    higher = deployment.priority > waiting.deployment.priority
    lower = deployment.priority < waiting.deployment.priority
    if sleeping(instance):
        return (Reason.LOWER_PRIORITY, None) if standing.urgent else (None, None)
    kept = deployment.min_replicas > 0 and not lower
    if not waiting.urgent and (standing.active or kept):
        # Nobody waits for it: it takes what is idle, and never from who is as important.
        return Reason.LOWER_PRIORITY, None
    if not standing.active:
        return None, None
    if higher and not waiting.overdue:
        return Reason.LOWER_PRIORITY, waiting.waiting_since + waiting.patience_s
    until = resident_since(draft, instance) + _minimum_residency(draft, standing, instance, lower)
    if draft.now < until:
        return Reason.QUANTUM, until
    return None, None


def resident_since(draft: Draft, instance: Instance) -> float:
    """When its residency began: its last switch, or when it became ready after it."""
    switched = draft.last_switch_at.get(instance.spec.deployment, 0.0)
    return max(switched, instance.status.state_since if instance.status else 0.0)


def _minimum_residency(draft: Draft, standing: Standing, instance: Instance, lower: bool) -> float:
    profile = draft.profile(standing, instance.spec.device)
    rungs = allowed(standing.deployment, profile) if profile else ()
    if profile is None or not rungs:
        return 0.0
    return quantum_s(profile, rungs[0]) * (HASTE if lower else 1.0)


def yield_cost(standing: Standing, way: PutAway, occupied_s: float, asleep: bool = False) -> float:
    """Weighted seconds that putting an instance away costs over the horizon.

    It comes back with the probability that a request arrives, and with certainty if one runs. One that is in use
    takes turns with the newcomer from now on (each turn lasts `occupied_s`): it is away half of the time, and what
    arrives meanwhile waits half of a turn. For one that is `asleep` already, only coming back gets dearer.
    """
    rate = standing.rate_per_s
    needed = 1.0 - exp(-rate * HORIZON_S)
    if asleep:
        return standing.weight * needed * way.switch_s
    cost = (needed + standing.in_flight) * way.switch_s
    if standing.active:
        cost += rate * (occupied_s + way.switch_s) * HORIZON_S / 4
    return standing.weight * cost
