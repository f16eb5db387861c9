"""A world for the loop, in memory: what is observed is set by the test, what is wanted is written down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from estiba_scheduler.control import CannotObserve, EffectFailed, Observed
from estiba_scheduler.domain import (
    Action,
    ActionKind,
    Demand,
    Deployment,
    Instance,
    InstanceSpec,
    Plan,
    PlannerMemory,
    Reason,
    Snapshot,
)
from estiba_scheduler.store import Decision
from tests.builders import MIB, NOW, PRODUCT, a_node, a_profile


class ScriptedWorld:
    """Observer and Effects at once. `failing`: instance or deployment ids whose changes do not work."""

    def __init__(self) -> None:
        self.now = NOW
        self.deployments: list[Deployment] = []
        self.instances: list[Instance] = []
        self.demand: list[Demand] = []
        self.nodes = [a_node()]
        self.away = False
        self.failing: set[str] = set()
        self.stuck: set[str] = set()
        self.wanted: list[InstanceSpec] = []
        self.tried: list[str] = []
        self.forgotten: list[str] = []
        self.decisions: list[Decision] = []
        self.looks = 0
        self.looks_in_vain = 0
        self.between: Callable[[], None] | None = None
        """Called after the first look of each pass: what happens while the plan is made."""

    def clock(self) -> float:
        return self.now

    async def observe(self) -> Observed:
        if self.away:
            self.looks_in_vain += 1
            raise CannotObserve("the agent does not answer")
        seen = Observed(
            nodes=tuple(n.model_copy(update={"reported_at": self.now}) for n in self.nodes),
            deployments=tuple(self.deployments),
            instances=tuple(self.instances),
            demand={d.deployment: d for d in self.demand},
            profiles={d.id: {PRODUCT: a_profile(d.name)} for d in self.deployments},
        )
        self.looks += 1
        if self.between is not None and self.looks % 2 == 1:
            self.between()
        return seen

    async def want(self, spec: InstanceSpec) -> None:
        self.tried.append(spec.id)
        if {spec.id, spec.deployment} & self.failing:
            raise EffectFailed("InsufficientMemory", "no room")
        if {spec.id, spec.deployment} & self.stuck:
            await asyncio.Event().wait()
        self.wanted.append(spec)

    async def forget(self, instance: Instance) -> None:
        self.forgotten.append(instance.id)

    def record(self, decision: Decision) -> None:
        self.decisions.append(decision)


def decider(*actions: Action, memory: PlannerMemory | None = None) -> Callable[[Snapshot, float], Plan]:
    """A planner that has made up its mind."""
    return lambda snapshot, now: Plan(actions=tuple(actions), memory=memory or snapshot.memory)


def an_action(kind: ActionKind, name: str = "a", **changes: Any) -> Action:
    """About the builders' instance `<name>-1` of `default/<name>` at generation 3."""
    fields: dict[str, Any] = {
        "kind": kind,
        "deployment": f"default/{name}",
        "node": "n1",
        "device": "cpu-0",
        "reason": Reason.DEMAND,
        "message": "because",
        "resident_bytes": 100 * MIB,
        "kv_bytes": 16 * MIB,
        "budget_bytes": 120 * MIB,
    }
    if kind is not ActionKind.START:
        fields |= {"instance": f"{name}-1", "expected_generation": 3}
    if kind is ActionKind.SLEEP:
        fields |= {"level": 1}
    return Action(**fields | changes)


def kinds(decisions: Sequence[Decision]) -> list[str]:
    return [decision.kind for decision in decisions]
