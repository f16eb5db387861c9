"""Models of which no profile is known are measured, while their device has nothing else to do.

A device that serves is left alone: what is new is planned by estimates until the device is idle. A measurement makes
way as soon as somebody waits for a model that is known already, and goes on later where it stopped.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

from estiba_agent.api.bodies import JobState, JobView
from estiba_scheduler.control import CannotObserve
from estiba_scheduler.domain import Device, InstanceState, Reason
from estiba_scheduler.planning.cluster import up as is_up

from ..profile_cache import ProfileCache
from .agent_client import AgentClient, AgentRefused, AgentUnreachable
from .deployment_book import DeploymentBook, Entry
from .world import MachineObserver, profile_key

log = logging.getLogger(__name__)

LOOK_S = 0.3
AGAIN_S = 600.0
"""What could not be measured is planned by estimates, and tried again after that."""


@dataclass(frozen=True, slots=True)
class Missing:
    entry: Entry
    device: Device


class MeasuringFirst:
    def __init__(
        self,
        agent: AgentClient,
        observer: MachineObserver,
        book: DeploymentBook,
        cache: ProfileCache,
        enabled: bool = True,
    ) -> None:
        self._agent = agent
        self._observer = observer
        self._book = book
        self._cache = cache
        self._enabled = enabled
        self._given_up: dict[tuple[str, str], float] = {}
        self.job: JobView | None = None
        """The last one, running or over."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._once()
            except AgentRefused as error:
                # The memory of what was just stopped is seen free a moment later.
                level = logging.DEBUG if error.reason == Reason.INSUFFICIENT_MEMORY else logging.WARNING
                log.log(level, "nothing can be measured now: %s", error)
                await asyncio.sleep(LOOK_S)
            except (AgentUnreachable, CannotObserve) as error:
                log.warning("nothing can be measured now: %s", error)
                await asyncio.sleep(1.0)
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Which deployments are to wait for their measurement; called before the first pass, too."""
        waits = [m.entry.deployment.id for m in self._missing() if await self._free(m.device)]
        self._observer.unmeasured = frozenset(waits)

    # -- inner ------------------------------------------------------------------------------------------------------

    async def _once(self) -> None:
        await self.look()
        for missing in self._missing():
            if missing.entry.deployment.id in self._observer.unmeasured:
                await self._measure(missing)
                return

    def _missing(self) -> list[Missing]:
        """The most important first."""
        if not self._enabled:
            return []
        now = time.monotonic()
        found = [
            Missing(entry, device)
            for entry in self._book.entries()
            for device in self._observer.devices
            if (key := profile_key(entry, device.product)) is not None
            and self._observer.measured(key) is None
            and self._given_up.get((entry.deployment.id, device.product), 0.0) <= now
        ]
        return sorted(found, key=lambda m: (-m.entry.deployment.priority, m.entry.deployment.id, m.device.uuid))

    async def _free(self, device: Device) -> bool:
        """Nothing on it runs or is about to, and nobody waits for what could be served without measuring."""
        observed = await self._observer.observe()
        busy = any(is_up(i) and i.state is not InstanceState.FAILED for i in observed.instances)
        waiting = {name for name, demand in observed.demand.items() if demand.queued}
        return not busy and not self._known_among(waiting, device)

    def _known_among(self, deployments: set[str], device: Device) -> bool:
        missing = {m.entry.deployment.id for m in self._missing() if m.device.uuid == device.uuid}
        here = {d.id for d in self._book.deployments()}
        return bool((deployments & here) - missing)

    async def _measure(self, missing: Missing) -> None:
        deployment = missing.entry.deployment
        name = deployment.id.removeprefix("default/")
        began = time.monotonic()
        job = await self._agent.start_profile(deployment.id, deployment.model, missing.device.uuid, True)
        said = ""
        while True:
            self.job = view = await self._agent.job(job)
            if view.note != said:
                said = view.note
                log.info("measuring %s on %s: %d of %d, %s", name, missing.device.uuid, view.done, view.total, said)
            if view.state is not JobState.RUNNING:
                break
            observed = await self._observer.observe()
            waiting = {known for known, demand in observed.demand.items() if demand.queued}
            if self._known_among(waiting, missing.device):
                log.info("measuring %s makes way for requests, and goes on later", name)
                self.job = await self._agent.cancel_job(job)
                return
            if self._book.get(deployment.id) is None:
                self.job = await self._agent.cancel_job(job)
                return
            await asyncio.sleep(LOOK_S)
        if view.profile is not None:
            self._observer.learn(view.profile)
            self._cache.keep(view.profile)
            log.info("measured %s in %.1f s", name, time.monotonic() - began)
        else:
            self._given_up[deployment.id, missing.device.product] = time.monotonic() + AGAIN_S
            log.error("%s could not be measured, estimates are used: %s", name, view.error)
