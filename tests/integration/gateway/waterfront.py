"""A gateway on a real Redis, for tests that play the agent and the control loop themselves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import redis.asyncio as redis_asyncio

from estiba_gateway.config import GatewayConfig
from estiba_gateway.gateway import Gateway
from estiba_scheduler.domain import Demand, Deployment, InstanceStatus
from estiba_scheduler.store import LocalRedis, Store
from tests.builders import a_deployment
from tests.waiting import until_async

DEADLINE_S = 20.0
CHAT = "/v1/chat/completions"


def asking(model: str = "a", content: str = "hello", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": content}], **fields}


class Waterfront:
    """The gateway under test, its store, and a client of it."""

    def __init__(self, redis: LocalRedis, store: Store, gateway: Gateway, http: httpx.AsyncClient) -> None:
        self.redis = redis
        self.store = store
        self.gateway = gateway
        self.http = http

    async def deploys(self, *deployments: Deployment) -> None:
        """Returns when the gateway has seen them."""
        await self.store.put_deployments(deployments)
        wanted = {d.id: d.problem for d in deployments}

        async def seen() -> bool:
            answer = await self.http.get("/v1/models")
            return answer.status_code == 200 and wanted == {
                card["deployment"]: card["problem"] for card in answer.json()["data"]
            }

        await until_async(seen, DEADLINE_S, f"the gateway knows {sorted(wanted)}")

    async def reports(self, *statuses: InstanceStatus) -> None:
        """Returns when the store has them; the gateway is woken."""
        for status in statuses:
            await self.store.put_instance(status)
        await self.store.kick()

    async def state(self, model: str, state: str) -> None:
        """Until the gateway knows the model to be in `state`."""

        async def so() -> bool:
            return bool((await self.http.get(f"/v1/models/{model}")).json()["state"] == state)

        await until_async(so, DEADLINE_S, f"{model} is {state}")

    async def ask(self, model: str = "a", content: str = "hello", **fields: Any) -> httpx.Response:
        return await self.http.post(CHAT, json=asking(model, content, **fields))

    def asks(self, model: str = "a", content: str = "hello", **fields: Any) -> asyncio.Task[httpx.Response]:
        return asyncio.create_task(self.ask(model, content, **fields))

    async def gauge(self, name: str, model: str = "default/a") -> float:
        return await self.series(f'{name}{{model="{model}"}}')

    async def series(self, series: str) -> float:
        page = (await self.http.get("/metrics")).text
        values = [line.rpartition(" ")[2] for line in page.splitlines() if line.rpartition(" ")[0] == series]
        return float(values[0]) if values else 0.0

    async def holds(self, count: int, model: str = "default/a") -> None:
        """Until so many requests are held."""

        async def so() -> bool:
            return await self.gauge("estiba_gateway_held_requests", model) == count

        await until_async(so, DEADLINE_S, f"{count} requests of {model} are held")

    async def flies(self, count: int, model: str = "default/a") -> None:
        """Until so many requests are with engines."""

        async def so() -> bool:
            return await self.gauge("estiba_gateway_in_flight_requests", model) == count

        await until_async(so, DEADLINE_S, f"{count} requests of {model} are in flight")

    async def demand(self, condition: Callable[[Demand], bool], deployment: str = "default/a") -> Demand:
        """The first demand in the store that fulfils the condition."""

        async def found() -> Demand | None:
            seen = (await self.store.demand()).get(deployment)
            return seen if seen is not None and condition(seen) else None

        demand = await until_async(found, DEADLINE_S, "such a demand is in the store")
        assert demand is not None
        return demand


def a_config(state_dir: Path, redis_url: str, **changes: Any) -> GatewayConfig:
    fields: dict[str, Any] = {"redis_url": redis_url, "state_dir": state_dir, "port": 0, "poll_s": 0.05, "hold_s": 30}
    return GatewayConfig(**{**fields, "demand_every_s": 0.2, "finish_s": 5, **changes})


@contextlib.asynccontextmanager
async def a_waterfront(directory: Path, redis: LocalRedis, **changes: Any) -> AsyncIterator[Waterfront]:
    """With one deployment, `a`, which nobody serves."""
    config = a_config(directory, redis.url, **changes)
    gateway, store = Gateway(config), Store(redis.url)
    running = asyncio.create_task(gateway.run())
    try:
        port = await until_async(lambda: _port(config, running), DEADLINE_S, "the gateway listens")
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE_S, trust_env=False) as http:
            waterfront = Waterfront(redis, store, gateway, http)
            if redis.running:
                await waterfront.deploys(a_deployment("a"))
            yield waterfront
    finally:
        gateway.end()
        gateway.end()
        await running
        await store.aclose()


async def _port(config: GatewayConfig, running: asyncio.Task[None]) -> str:
    if running.done():
        running.result()
    return config.port_file.read_text().strip() if config.port_file.exists() else ""


async def all_of(answers: Sequence[Awaitable[httpx.Response]]) -> list[httpx.Response]:
    return list(await asyncio.gather(*answers))


async def kicks_sent(redis: LocalRedis) -> int:
    """By anybody since it started, as Redis counts."""
    client = redis_asyncio.Redis.from_url(redis.url, decode_responses=True)
    try:
        counted = await client.info("commandstats")
    finally:
        await client.aclose()
    return int(counted.get("cmdstat_publish", {}).get("calls", 0))
