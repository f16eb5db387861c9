"""What the loop sees and does, without knowing how: one machine, a cluster or a simulation stand behind it."""

from __future__ import annotations

from typing import Protocol

from pydantic import Field

from ..domain import (
    Demand,
    Deployment,
    Instance,
    InstanceSpec,
    ModelProfile,
    Node,
    PlannerMemory,
    Snapshot,
    Value,
)
from ..store import Decision


class Observed(Value):
    """The world at one moment, as far as it could be seen."""

    nodes: tuple[Node, ...] = ()
    deployments: tuple[Deployment, ...] = ()
    instances: tuple[Instance, ...] = ()
    demand: dict[str, Demand] = Field(default_factory=dict)
    profiles: dict[str, dict[str, ModelProfile]] = Field(default_factory=dict)
    profiling: frozenset[str] = frozenset()
    heartbeat_ttl_s: float = 15.0
    problems: tuple[str, ...] = Field(default=(), description="what could not be seen now, for people")

    def snapshot(self, memory: PlannerMemory) -> Snapshot:
        return Snapshot(
            nodes=self.nodes,
            deployments=self.deployments,
            instances=self.instances,
            demand=self.demand,
            profiles=self.profiles,
            profiling=self.profiling,
            memory=memory,
            heartbeat_ttl_s=self.heartbeat_ttl_s,
        )


class CannotObserve(Exception):
    """Too little can be seen to decide anything: nothing is done, and nothing that runs is touched."""


class EffectFailed(Exception):
    """Something could not be done; the next pass decides anew. `reason`: a Reason constant or the other side's own."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Observer(Protocol):
    async def observe(self) -> Observed:
        """Raises CannotObserve."""
        ...


class Effects(Protocol):
    """Each call ends within a bounded time."""

    async def want(self, spec: InstanceSpec) -> None:
        """Make this the desired state of an instance, new or known. Raises EffectFailed."""
        ...

    async def forget(self, instance: Instance) -> None:
        """Drop the record of one that is gone. Raises EffectFailed."""
        ...

    def record(self, decision: Decision) -> None:
        """Keep a decision for people. Never blocks and never fails."""
        ...
