"""How a deployment stands: what its demand is, whether it should be awake, since when it waits or idles."""

from __future__ import annotations

from dataclasses import dataclass

from ..domain import Demand, Deployment, IdleMode, Instance, InstanceState, ModelProfile
from ..prediction import idle_s, switch_s
from ..prediction.reload import MINIMUM_IDLE_S
from .cluster import Cluster, failed, going, sleeping, up
from .rungs import allowed

HORIZON_S = 60.0
"""Seconds over which costs and gains are compared; about the memory of the observed arrival rate."""
DEFAULT_OUTPUT_TOKENS = 128.0
KEPT_RATE_PER_S = 1 / 600
"""Arrival rate assumed where none was seen: something is kept for a reason."""


def priority_weight(priority: int) -> float:
    """What a second of this deployment's requests counts: priority 100 counts twice priority 0."""
    return 1.0 + priority / 100.0


@dataclass(frozen=True, slots=True)
class Standing:
    """One deployment with what is known of it in this pass."""

    deployment: Deployment
    demand: Demand
    instances: tuple[Instance, ...]
    queued: int
    in_flight: int
    last_busy_at: float | None
    idle_after_s: float | None  # by policy; None: never put away for being idle
    active_s: float  # the derived idle time, whatever the policy says
    waiting_since: float
    patience_s: float
    now: float

    @property
    def id(self) -> str:
        return self.deployment.id

    @property
    def weight(self) -> float:
        return priority_weight(self.deployment.priority)

    @property
    def rate_per_s(self) -> float:
        """Arrival rate, not below what is waiting now spread over the horizon."""
        waiting = (self.queued + self.in_flight) / HORIZON_S
        return max(self.demand.arrival_rate_per_s, waiting, KEPT_RATE_PER_S)

    @property
    def output_tokens(self) -> float:
        return self.demand.output_tokens_mean or DEFAULT_OUTPUT_TOKENS

    @property
    def busy(self) -> bool:
        return self.queued > 0 or self.in_flight > 0

    @property
    def idle_at(self) -> float | None:
        """When its idle time is over; None while it is busy, may never idle, or was never ready."""
        if self.busy or self.idle_after_s is None or self.last_busy_at is None:
            return None
        return self.last_busy_at + self.idle_after_s

    @property
    def recent(self) -> bool:
        """Busy, or within its idle time."""
        if self.busy:
            return True
        if self.last_busy_at is None:
            return False
        return self.idle_after_s is None or self.now < self.last_busy_at + self.idle_after_s

    @property
    def active(self) -> bool:
        """Busy, or so lately that it is worth more in place than put away, whatever its idle policy."""
        return self.busy or (self.last_busy_at is not None and self.now < self.last_busy_at + self.active_s)

    @property
    def wanted(self) -> int:
        """Replicas that should be awake."""
        one = 1 if self.busy or (self.recent and self.has_up) else 0
        return min(self.deployment.max_replicas, max(self.deployment.min_replicas, one))

    @property
    def urgent(self) -> bool:
        """Requests wait for it."""
        return self.queued > 0

    @property
    def has_up(self) -> bool:
        return any(up(i) for i in self.instances)

    @property
    def up(self) -> tuple[Instance, ...]:
        return tuple(i for i in self.instances if up(i))

    @property
    def sleepers(self) -> tuple[Instance, ...]:
        return tuple(i for i in self.instances if sleeping(i))

    @property
    def failed(self) -> tuple[Instance, ...]:
        return tuple(i for i in self.instances if failed(i))

    @property
    def going(self) -> tuple[Instance, ...]:
        return tuple(i for i in self.instances if going(i))

    @property
    def overdue(self) -> bool:
        """It has waited longer than any model should."""
        return self.urgent and self.now - self.waiting_since >= self.patience_s


def standing_of(cluster: Cluster, deployment: Deployment, remembered_busy_at: float | None) -> Standing:
    """Read one deployment's standing off the snapshot."""
    now = cluster.now
    demand = cluster.demand(deployment.id)
    instances = cluster.of(deployment.id)
    statuses = [i.status for i in instances if i.status is not None]
    in_flight = max(demand.in_flight, sum(s.in_flight + s.waiting for s in statuses))
    moments = [remembered_busy_at, demand.last_request_at]
    for status in statuses:
        moments.append(status.last_request_at)
        if status.state is InstanceState.READY:
            # The idle clock starts when it is ready, never before: a model can't idle away while it loads.
            moments += [status.first_ready_at, status.state_since]
    if demand.queued or in_flight:
        moments.append(now)
    known = [m for m in moments if m is not None]
    profile = cluster.any_profile(deployment.id)
    return Standing(
        deployment=deployment,
        demand=demand,
        instances=instances,
        queued=demand.queued,
        in_flight=in_flight,
        last_busy_at=min(now, max(known)) if known else None,
        idle_after_s=idle_after_s(deployment, profile),
        active_s=_derived_idle(deployment, profile) or MINIMUM_IDLE_S,
        waiting_since=_waiting_since(demand, deployment, now),
        patience_s=_patience(deployment, profile),
        now=now,
    )


def idle_after_s(deployment: Deployment, profile: ModelProfile | None) -> float | None:
    """Seconds without a request after which it is put away. None: never, or nothing is known to derive it from."""
    if deployment.policies.idle is IdleMode.NEVER:
        return None
    if deployment.policies.idle_s is not None:
        return deployment.policies.idle_s
    return _derived_idle(deployment, profile)


def _derived_idle(deployment: Deployment, profile: ModelProfile | None) -> float | None:
    rungs = allowed(deployment, profile) if profile else ()
    return idle_s(profile, rungs[0]) if profile and rungs else None


def _waiting_since(demand: Demand, deployment: Deployment, now: float) -> float:
    if demand.queued:
        return demand.oldest_queued_at if demand.oldest_queued_at is not None else now
    return deployment.created_at if deployment.min_replicas else now


def _patience(deployment: Deployment, profile: ModelProfile | None) -> float:
    """How long a request may wait before even a busy deployment of higher priority makes way.

    Three times the wanted time to the first token, ten times the switch that serving it takes, at least 30 s.
    """
    rungs = allowed(deployment, profile) if profile else ()
    switch = switch_s(profile, rungs[0]) if profile and rungs else 0.0
    return max(30.0, 3.0 * deployment.objectives.ttft_s, 10.0 * switch)
