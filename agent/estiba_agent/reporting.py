"""What the agent tells the store: its node, its instances, its profiles. Everything can be told again.

Statuses are written when they change and with every heartbeat; with the store away the newest of each is kept and
written later. A store that lost its data gets the profiles again, and documents of instances that no longer exist are
removed from one that kept too much.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from estiba_scheduler.domain import InstanceStatus, ModelProfile, Node
from estiba_scheduler.store import BufferedWriter, Store, StoreUnavailable

from .profile_copies import ProfileCopies

log = logging.getLogger(__name__)

COMPARE_BEATS = 5
"""After so many heartbeats the store's contents are compared with what is known here."""


class Reporting:
    def __init__(
        self,
        store: Store,
        writer: BufferedWriter,
        node: str,
        ttl_s: float,
        copies: ProfileCopies,
        instances: Callable[[], Sequence[InstanceStatus]],
    ) -> None:
        self._store = store
        self._writer = writer
        self._node = node
        self._ttl_s = ttl_s
        self._copies = copies
        self._instances = instances
        self._back = asyncio.Event()

    # -- events -----------------------------------------------------------------------------------------------------

    def status(self, status: InstanceStatus) -> None:
        self._writer.put(f"instance/{status.id}", lambda: self._store.put_instance(status))

    def forgotten(self, instance: str) -> None:
        self._writer.put(f"instance/{instance}", lambda: self._store.delete_instance(instance))

    def node(self, node: Node) -> None:
        self._writer.put("node", lambda: self._store.put_node(node, self._ttl_s))

    def profile(self, profile: ModelProfile) -> None:
        """Keep a copy here, and tell the store."""
        try:
            self._copies.keep(profile)
        except OSError as error:
            log.error("no copy of profile %s could be kept, a store may lose it: %s", profile.key, error)
        self._put(profile)

    async def last_words(self, within_s: float) -> None:
        """On the way out: write what stands now straight to the store, if it is there."""
        try:
            async with asyncio.timeout(within_s):
                for status in self._instances():
                    await self._store.put_instance(status)
                for instance in await self._documents_of_none():
                    await self._store.delete_instance(instance)
        except (StoreUnavailable, TimeoutError) as error:
            log.warning("the store is away, the next agent reports anew: %s", error or "no answer")

    # -- rounds -----------------------------------------------------------------------------------------------------

    async def run(self, heartbeat: Callable[[], Node | None], heartbeat_s: float) -> None:
        """Heartbeats and comparisons, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat(heartbeat, heartbeat_s), name="heartbeat")
            group.create_task(self._compare(COMPARE_BEATS * heartbeat_s), name="compare with the store")

    async def _beat(self, heartbeat: Callable[[], Node | None], heartbeat_s: float) -> None:
        reachable = False
        while True:
            if self._writer.reachable and not reachable:
                self._back.set()  # it may come back empty
            reachable = self._writer.reachable
            node = heartbeat()
            if node is not None:
                self.node(node)
            for status in self._instances():
                self.status(status)
            await asyncio.sleep(heartbeat_s)

    async def _compare(self, every_s: float) -> None:
        while True:
            try:
                await self._tell_again()
            except StoreUnavailable as error:
                log.debug("can't compare with the store: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await self._back.wait()
            self._back.clear()

    async def _tell_again(self) -> None:
        known = {str(profile.key) for profile in await self._store.profiles()}
        for profile in self._copies.all():
            if str(profile.key) not in known:
                log.info("the store has no profile %s; it is told again", profile.key)
                self._put(profile)
        for instance in await self._documents_of_none():
            log.info("the store knows %s, which is not here any more; its document is removed", instance)
            self.forgotten(instance)

    async def _documents_of_none(self) -> list[str]:
        """Instances that the store has of this node, and that are not here."""
        documents = await self._store.instances()
        here = {status.id for status in self._instances()}
        return [document.id for document in documents if document.node == self._node and document.id not in here]

    def _put(self, profile: ModelProfile) -> None:
        self._writer.put(f"profile/{profile.key}", lambda: self._store.put_profile(profile))
