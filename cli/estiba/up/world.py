"""The one machine as the loop sees and moves it: what runs from the agent, demand and profiles from the store."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TypeVar

from estiba_scheduler.control import CannotObserve, EffectFailed, Observed
from estiba_scheduler.domain import (
    Demand,
    Device,
    Instance,
    InstanceSpec,
    ModelProfile,
    Node,
    ProfileKey,
)
from estiba_scheduler.prediction import estimate_profile
from estiba_scheduler.store import BufferedWriter, Decision, Store, StoreUnavailable

from .agent_client import AgentClient, AgentRefused, AgentUnreachable
from .deployment_book import DeploymentBook, Entry

log = logging.getLogger(__name__)

T = TypeVar("T")

DEMAND_HOLDS_S = 10.0
"""Demand that was seen longer ago than that, with the store away, says nothing any more."""


def profile_key(entry: Entry, product: str) -> ProfileKey | None:
    """What a profile of this deployment on that product is found by. None: its model could not be read."""
    if entry.facts is None:
        return None
    return ProfileKey(
        model_digest=entry.facts.digest,
        dtype=entry.facts.dtype,
        engine=entry.facts.engine,
        engine_version=entry.facts.engine_version,
        product=product,
    )


class MachineObserver:
    """Without its agent nothing is decided; without the store, the last profiles stand, and that is said."""

    def __init__(self, agent: AgentClient, store: Store, book: DeploymentBook) -> None:
        self._agent = agent
        self._store = store
        self._book = book
        self._nodes: tuple[Node, ...] = ()
        self._demand: dict[str, Demand] = {}
        self._demand_at = 0.0
        self._profiles: dict[str, ModelProfile] = {}
        self._estimates: dict[str, ModelProfile] = {}
        self.unmeasured: frozenset[str] = frozenset()
        """Deployments that wait to be measured: they are not placed by estimates."""

    async def observe(self) -> Observed:
        try:
            seen = await self._agent.observed()
        except (AgentUnreachable, AgentRefused) as error:
            raise CannotObserve(str(error)) from error
        if seen.node is not None:
            self._nodes = (seen.node,)
        problems: list[str] = []
        try:
            demand, profiles, set_aside = await asyncio.gather(
                self._store.demand(), self._store.profiles(), self._store.quarantined()
            )
            problems += [
                f"the store has a document that can't be read: {where}: {why}" for where, why in set_aside.items()
            ]
            self._demand, self._demand_at = demand, time.monotonic()
            # Measured profiles are facts: a store that lost them does not unmake them.
            self._profiles |= {str(profile.key): profile for profile in profiles}
        except StoreUnavailable as error:
            problems.append(f"{error}; going on with what was seen last")
            if time.monotonic() - self._demand_at > DEMAND_HOLDS_S:
                self._demand = {}
        return Observed(
            nodes=self._nodes,
            deployments=self._book.deployments(),
            instances=tuple(Instance(spec=view.spec, status=view.status) for view in seen.instances),
            demand=self._demand,
            profiles={entry.deployment.id: self._known(entry, self._nodes) for entry in self._book.entries()},
            profiling=self.unmeasured,
            problems=tuple(problems),
        )

    @property
    def found_none(self) -> bool:
        """The devices were looked for, and there are none."""
        return bool(self._nodes) and not self.devices

    @property
    def devices(self) -> tuple[Device, ...]:
        """As last seen."""
        return tuple(device for node in self._nodes for device in node.devices)

    def measured(self, key: ProfileKey) -> ModelProfile | None:
        return self._profiles.get(str(key))

    def learn(self, profile: ModelProfile) -> None:
        """A profile that was just measured, before the store tells it."""
        self._profiles[str(profile.key)] = profile

    def _known(self, entry: Entry, nodes: tuple[Node, ...]) -> dict[str, ModelProfile]:
        """By product: what was measured, else what is estimated from the model's files, labelled so."""
        known: dict[str, ModelProfile] = {}
        for node in nodes:
            for device in node.devices:
                key = profile_key(entry, device.product)
                if key is None or entry.facts is None:
                    continue
                if (measured := self.measured(key)) is not None:
                    known[device.product] = measured
                elif entry.deployment.id not in self.unmeasured:
                    if str(key) not in self._estimates:
                        self._estimates[str(key)] = estimate_profile(
                            key, entry.facts.facts, device, node.link_of(device)
                        )
                    known[device.product] = self._estimates[str(key)]
        return known


class MachineEffects:
    """Desired states go to the agent; decisions to the store, later when it is away, and to whoever listens here."""

    def __init__(
        self, agent: AgentClient, store: Store, writer: BufferedWriter, listener: Callable[[Decision], None]
    ) -> None:
        self._agent = agent
        self._store = store
        self._writer = writer
        self._listener = listener
        self._count = 0

    async def want(self, spec: InstanceSpec) -> None:
        try:
            await self._agent.want(spec)
        except AgentRefused as error:
            raise EffectFailed(error.reason, error.message) from error
        except AgentUnreachable as error:
            raise EffectFailed("AgentUnreachable", str(error)) from error

    async def forget(self, instance: Instance) -> None:
        try:
            await self._agent.forget(instance.id)
        except AgentRefused as error:
            if error.status != 404:
                raise EffectFailed(error.reason, error.message) from error
        except AgentUnreachable as error:
            raise EffectFailed("AgentUnreachable", str(error)) from error

    def record(self, decision: Decision) -> None:
        self._listener(decision)
        self._count += 1
        self._writer.put(f"decision/{self._count}", lambda: self._store.append_decision(decision))
