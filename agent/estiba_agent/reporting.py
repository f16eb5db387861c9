"""What the agent tells the store: its node, its instances, its profiles. Everything can be told again.

Statuses are written when they change and with every heartbeat; with the store away the newest of each is kept and
written later. A store that lost its data gets the profiles again, and documents of instances that no longer exist are
removed from one that kept too much.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from estiba_scheduler.domain import InstanceStatus, ModelProfile, Node
from estiba_scheduler.store import BufferedWriter, Store, StoreUnavailable

from .profile_copies import ProfileCopies

log = logging.getLogger(__name__)

COMPARE_S = 5.0
"""How often the store's contents are compared with what is known here."""


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
        """Give what is buffered a last chance on the way out."""
        if not await self._writer.flush(within_s):
            log.warning("the store is away: the last reports are lost, the next agent reports anew")

    # -- rounds -----------------------------------------------------------------------------------------------------

    async def run(self, heartbeat: Callable[[], Node | None], heartbeat_s: float) -> None:
        """Heartbeats and comparisons, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat(heartbeat, heartbeat_s), name="heartbeat")
            group.create_task(self._compare(), name="compare with the store")

    async def _beat(self, heartbeat: Callable[[], Node | None], heartbeat_s: float) -> None:
        while True:
            node = heartbeat()
            if node is not None:
                self.node(node)
            for status in self._instances():
                self.status(status)
            await asyncio.sleep(heartbeat_s)

    async def _compare(self) -> None:
        while True:
            try:
                await self._tell_again()
            except StoreUnavailable as error:
                log.debug("can't compare with the store: %s", error)
            await asyncio.sleep(COMPARE_S)

    async def _tell_again(self) -> None:
        known = {str(profile.key) for profile in await self._store.profiles()}
        for profile in self._copies.all():
            if str(profile.key) not in known:
                log.info("the store has no profile %s; it is told again", profile.key)
                self._put(profile)
        documents = await self._store.instances()
        here = {status.id for status in self._instances()}
        for document in documents:
            if document.node == self._node and document.id not in here:
                log.info("the store knows %s, which is not here any more; its document is removed", document.id)
                self.forgotten(document.id)

    def _put(self, profile: ModelProfile) -> None:
        self._writer.put(f"profile/{profile.key}", lambda: self._store.put_profile(profile))
