"""What agents, gateways and the decider tell each other through Redis.

Every operation raises StoreUnavailable within `timeout_s` when Redis is away. Writing the same twice is writing once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

from redis.exceptions import RedisError

from ..domain import Demand, Deployment, InstanceStatus, ModelProfile, Node, ProfileKey
from . import keys
from .decision import Decision
from .demand_sum import total_demand
from .documents import Documents, read_all, written
from .redis_call import call, connect, shown
from .unavailable import StoreUnavailable

T = TypeVar("T")

TIMEOUT_S = 2.0
MOST_DECISIONS = 2000
MOST_DECISIONS_OF_ONE = 200
DECISIONS_KEPT_S = 7 * 86400
RECONNECT_S = 0.5


class Store:
    """`url`: redis://host:port/0 or unix:///path. Raises ValueError when it is neither."""

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        self.where = shown(url)
        self._timeout_s = timeout_s
        self._redis = connect(url, timeout_s)
        self._documents = Documents(self._redis)

    async def ping(self) -> None:
        await self._call(lambda: self._redis.ping())

    async def aclose(self) -> None:
        with contextlib.suppress(RedisError, OSError):
            await self._redis.aclose()

    # -- nodes and their instances, by agents -----------------------------------------------------------------------

    async def put_node(self, node: Node, ttl_s: float) -> None:
        await self._call(lambda: self._documents.put_expiring(keys.NODES, node.name, node, ttl_s))

    async def nodes(self) -> list[Node]:
        """Those with a heartbeat that still holds."""
        return await self._call(lambda: self._documents.expiring(keys.NODES, Node, lambda n: n.name))

    async def put_instance(self, status: InstanceStatus) -> None:
        await self._put_field(keys.INSTANCES, status.id, written(status))

    async def instances(self) -> list[InstanceStatus]:
        return await self._call(lambda: self._documents.of_hash(keys.INSTANCES, InstanceStatus, lambda s: s.id))

    async def delete_instance(self, instance: str) -> None:
        await self._call(lambda: self._redis.hdel(keys.INSTANCES, instance))

    # -- profiles, by agents ----------------------------------------------------------------------------------------

    async def put_profile(self, profile: ModelProfile) -> None:
        await self._put_field(keys.PROFILES, str(profile.key), written(profile))

    async def profile(self, key: ProfileKey) -> ModelProfile | None:
        return await self._call(
            lambda: self._documents.field(keys.PROFILES, str(key), ModelProfile, lambda p: str(p.key))
        )

    async def profiles(self) -> list[ModelProfile]:
        return await self._call(lambda: self._documents.of_hash(keys.PROFILES, ModelProfile, lambda p: str(p.key)))

    # -- deployments and decisions, by the decider ------------------------------------------------------------------

    async def put_deployments(self, deployments: Iterable[Deployment]) -> None:
        """Exactly these: the others are gone."""
        texts = {deployment.id: written(deployment) for deployment in deployments}

        async def replace() -> None:
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.delete(keys.DEPLOYMENTS)
                if texts:
                    pipe.hset(keys.DEPLOYMENTS, mapping=dict(texts))
                await pipe.execute()

        await self._call(replace)

    async def deployments(self) -> list[Deployment]:
        return await self._call(lambda: self._documents.of_hash(keys.DEPLOYMENTS, Deployment, lambda d: d.id))

    async def append_decision(self, decision: Decision) -> None:
        fields = {"decision": written(decision)}

        async def append() -> None:
            one = keys.decisions_of(decision.deployment)
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.xadd(keys.DECISIONS, dict(fields), maxlen=MOST_DECISIONS, approximate=True)
                pipe.xadd(one, dict(fields), maxlen=MOST_DECISIONS_OF_ONE, approximate=True)
                pipe.expire(one, DECISIONS_KEPT_S)
                await pipe.execute()

        await self._call(append)

    async def decisions(self, deployment: str | None = None, limit: int = 50) -> list[Decision]:
        """The last ones, oldest first."""
        stream = keys.DECISIONS if deployment is None else keys.decisions_of(deployment)
        newest_first = await self._call(lambda: self._redis.xrevrange(stream, count=limit))
        return read_all(Decision, (fields.get("decision", "") for _, fields in reversed(newest_first)))

    # -- demand, by gateways ----------------------------------------------------------------------------------------

    async def put_demand(self, source: str, demand: Demand, ttl_s: float) -> None:
        name = keys.demand_name(source, demand.deployment)
        await self._call(lambda: self._documents.put_expiring(keys.DEMAND, name, demand, ttl_s))

    async def demand(self) -> dict[str, Demand]:
        """By deployment, over all sources that spoke lately."""
        return total_demand(await self._call(lambda: self._documents.expiring(keys.DEMAND, Demand)))

    # -- wake-ups ---------------------------------------------------------------------------------------------------

    async def kick(self) -> None:
        """Ask for the next pass now."""
        await self._call(lambda: self._redis.publish(keys.KICKS, ""))

    async def kicks(self) -> AsyncIterator[None]:
        """One item per kick, for as long as it is iterated; with Redis away it waits until it is back.

        Kicks sent meanwhile are lost: whoever listens also looks now and then.
        """
        while True:
            try:
                async with self._redis.pubsub(ignore_subscribe_messages=True) as channel:
                    await self._call(lambda channel=channel: channel.subscribe(keys.KICKS))  # type: ignore[misc]
                    while True:
                        # A bounded wait, because a broken connection is only noticed by asking.
                        if await channel.get_message(timeout=1.0) is not None:
                            yield None
            except (StoreUnavailable, RedisError, OSError):
                await asyncio.sleep(RECONNECT_S)

    async def quarantined(self) -> dict[str, str]:
        """What could not be read: where it was -> why."""
        return await self._call(self._documents.quarantined)

    # -- inner ------------------------------------------------------------------------------------------------------

    async def _put_field(self, key: str, field: str, text: str) -> None:
        await self._call(lambda: self._redis.hset(key, field, text))

    async def _call(self, ask: Callable[[], Awaitable[T]]) -> T:
        return await call(self.where, self._timeout_s, ask)
