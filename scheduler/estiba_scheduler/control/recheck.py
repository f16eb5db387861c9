"""A last look before acting: the world may have moved while the plan was made."""

from __future__ import annotations

from ..domain import Action, ActionKind, Reason, Snapshot
from ..planning.cluster import Cluster, up
from ..planning.ledger import Ledger
from ..quantities import format_bytes

GROWING = frozenset({ActionKind.START, ActionKind.WAKE, ActionKind.RESIZE})


class Recheck:
    """Holds the actions of one plan, in their order, against a fresh snapshot. Accepted ones count for later ones."""

    def __init__(self, fresh: Snapshot, now: float) -> None:
        self._cluster = Cluster(fresh, now)
        self._ledger = Ledger(self._cluster, dict(fresh.memory.footprint_factor))
        self._started: dict[str, int] = {}

    def objection(self, action: Action) -> str | None:
        """Why `action` must not be carried out now; None: it may."""
        return self._stale(action) or self._pointless(action) or self._too_large(action)

    def accept(self, action: Action) -> None:
        """Count what `action` will take."""
        key = action.instance or f"new:{action.deployment}:{action.device}"
        if action.kind is ActionKind.START:
            self._started[action.deployment] = self._started.get(action.deployment, 0) + 1
        self._ledger.change(key, action.device, action.node, action.budget_bytes, 0)

    # -- inner ------------------------------------------------------------------------------------------------------

    def _stale(self, action: Action) -> str | None:
        if action.kind is ActionKind.START:
            return None
        instance = next((i for i in self._cluster.instances if i.id == action.instance), None)
        if instance is None:
            return f"{action.instance} is gone"
        if instance.spec.generation != action.expected_generation:
            return (
                f"{action.instance} is at generation {instance.spec.generation} and this was decided on "
                f"{action.expected_generation}"
            )
        return None

    def _pointless(self, action: Action) -> str | None:
        deployment = self._cluster.deployments.get(action.deployment)
        if action.kind in GROWING and deployment is None:
            return f"{action.deployment} is deleted"
        if action.kind is ActionKind.START and deployment is not None:
            there = sum(1 for i in self._cluster.of(action.deployment) if up(i))
            if there + self._started.get(action.deployment, 0) >= deployment.max_replicas:
                return f"{action.deployment} runs already"
        if action.kind in (ActionKind.SLEEP, ActionKind.EVICT) and action.reason is Reason.IDLE:
            demand = self._cluster.demand(action.deployment)
            running = sum(
                i.status.in_flight + i.status.waiting for i in self._cluster.of(action.deployment) if i.status
            )
            if demand.queued or demand.in_flight or running:
                return f"{action.deployment} is not idle any more"
        return None

    def _too_large(self, action: Action) -> str | None:
        if action.kind not in GROWING:
            return None
        device = self._cluster.devices.get(action.device)
        if device is None or not self._cluster.reachable(action.node):
            return f"{action.device} on {action.node} is not seen now"
        own = frozenset({action.instance}) if action.instance else frozenset()
        room = self._ledger.room_now(device, without=own)
        if action.kind is not ActionKind.RESIZE and not self._cluster.takes_placements(device):
            return f"{action.device} is {device.health}"
        holding = self._ledger.holding(action.instance) if action.instance else None
        growing = holding is None or action.budget_bytes > holding.device_now
        if growing and action.budget_bytes > room:
            return (
                f"{format_bytes(action.budget_bytes)} are needed on {action.device} and "
                f"{format_bytes(max(0, room))} can be had now"
            )
        return None
