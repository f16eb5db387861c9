"""The store on a real Redis: what is written is read, the unreadable is set aside, an absent Redis is said at once."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from pathlib import Path

import pytest
import redis.asyncio as redis_asyncio
from pydantic import ValidationError

from estiba_scheduler.domain import Demand, InstanceState, InstanceStatus, Reason
from estiba_scheduler.store import BufferedWriter, Decision, LocalRedis, Store, StoreUnavailable, keys
from tests.builders import a_deployment, a_node, a_profile
from tests.waiting import until, until_async


def a_status(name: str = "a-1", state: InstanceState = InstanceState.READY) -> InstanceStatus:
    return InstanceStatus(id=name, deployment="default/a", node="n", device="d", state=state)


def a_decision(message: str, deployment: str = "default/a") -> Decision:
    return Decision(at=1.0, deployment=deployment, kind="Sleep", reason=Reason.IDLE, message=message)


def raw(server: LocalRedis) -> redis_asyncio.Redis:
    return redis_asyncio.Redis.from_url(server.url, decode_responses=True)


async def test_everything_written_is_read_again(store: Store) -> None:
    node, profile, deployment = a_node(), a_profile("a"), a_deployment("a")
    for _ in range(2):  # writing twice is writing once
        await store.put_node(node, ttl_s=60)
        await store.put_profile(profile)
        await store.put_instance(a_status())
        await store.put_deployments([deployment])
    assert await store.nodes() == [node]
    assert await store.profiles() == [profile]
    assert await store.profile(profile.key) == profile
    assert await store.profile(profile.key.model_copy(update={"dtype": "other"})) is None
    assert await store.instances() == [a_status()]
    assert await store.deployments() == [deployment]


async def test_deployments_are_replaced_as_a_whole(store: Store) -> None:
    await store.put_deployments([a_deployment("a"), a_deployment("b")])
    await store.put_deployments([a_deployment("b")])
    assert [d.name for d in await store.deployments()] == ["b"]
    await store.put_deployments([])
    assert await store.deployments() == []


async def test_a_deleted_instance_is_gone_and_may_be_deleted_again(store: Store) -> None:
    await store.put_instance(a_status())
    await store.delete_instance("a-1")
    await store.delete_instance("a-1")
    assert await store.instances() == []


async def test_a_node_without_heartbeat_is_gone_and_its_name_too(store: Store, redis_server: LocalRedis) -> None:
    await store.put_node(a_node(), ttl_s=0.05)

    async def gone() -> bool:
        return await store.nodes() == []

    await until_async(gone, 5)
    assert await raw(redis_server).scard(keys.NODES) == 0


async def test_demand_is_summed_over_gateways_and_ends_with_them(store: Store) -> None:
    one = Demand(deployment="default/a", queued=2, oldest_queued_at=5.0, arrival_rate_per_s=1, output_tokens_mean=10)
    await store.put_demand("g1", one.model_copy(update={"requests_total": 3}), ttl_s=60)
    await store.put_demand(
        "g2",
        Demand(deployment="default/a", queued=1, oldest_queued_at=4.0, requests_total=1, output_tokens_mean=50),
        ttl_s=60,
    )
    await store.put_demand("g2", Demand(deployment="default/b", queued=1), ttl_s=0.05)

    async def b_gone() -> bool:
        return "default/b" not in await store.demand()

    await until_async(b_gone, 5)
    total = (await store.demand())["default/a"]
    assert (total.queued, total.oldest_queued_at, total.arrival_rate_per_s) == (3, 4.0, 1)
    assert total.output_tokens_mean == 20


async def test_decisions_are_read_oldest_first_and_by_deployment(store: Store) -> None:
    for number in range(5):
        await store.append_decision(a_decision(f"a {number}"))
        await store.append_decision(a_decision(f"b {number}", "default/b"))
    assert [d.message for d in await store.decisions("default/a", limit=2)] == ["a 3", "a 4"]
    assert [d.message for d in await store.decisions(limit=3)] == ["b 3", "a 4", "b 4"]
    assert await store.decisions("default/unknown") == []


async def test_an_unreadable_document_is_set_aside_and_the_others_are_read(
    store: Store, redis_server: LocalRedis
) -> None:
    client = raw(redis_server)
    await store.put_instance(a_status("good"))
    await client.hset(keys.INSTANCES, "torn", '{"id": "to')
    await client.hset(keys.INSTANCES, "newer", a_status("newer").model_dump_json()[:-1] + ', "mood": "fine"}')
    await client.hset(keys.INSTANCES, "liar", a_status("someone-else").model_dump_json())
    await store.put_node(a_node(), ttl_s=60)
    await client.sadd(keys.NODES, "bad")
    await client.set(keys.document(keys.NODES, "bad"), "[]")
    assert [s.id for s in await store.instances()] == ["good"]
    assert len(await store.nodes()) == 1
    why = await store.quarantined()
    assert set(why) == {f"{keys.INSTANCES} {n}" for n in ("torn", "newer", "liar")} | {f"{keys.NODES}:bad"}
    assert "mood" in why[f"{keys.INSTANCES} newer"]
    assert await client.hkeys(keys.INSTANCES) == ["good"]


async def test_something_of_another_kind_under_our_name_is_set_aside_whole(
    store: Store, redis_server: LocalRedis
) -> None:
    await raw(redis_server).set(keys.PROFILES, "I was here first")
    assert await store.profiles() == []
    assert "is a string, not a hash" in (await store.quarantined())[keys.PROFILES]


async def test_a_document_that_could_not_be_read_again_is_not_written(store: Store) -> None:
    with pytest.raises(ValidationError):
        await store.put_instance(a_status().model_copy(update={"tpot_s": math.nan, "resident_fraction": math.nan}))
    assert await store.instances() == []


async def test_a_kick_wakes_the_listener(store: Store, redis_server: LocalRedis) -> None:
    kicks = store.kicks()
    waiting = asyncio.ensure_future(anext(kicks))

    async def subscribed() -> bool:
        return bool((await raw(redis_server).pubsub_numsub(keys.KICKS))[0][1])

    await until_async(subscribed, 5)
    await store.kick()
    async with asyncio.timeout(5):
        await waiting
    await kicks.aclose()


async def test_an_absent_redis_is_said_and_comes_back(tmp_path: Path) -> None:
    server = LocalRedis(tmp_path / "redis")
    await server.start()
    store = Store(server.url)
    await store.put_instance(a_status())
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    until(lambda: not server.running, 5)
    with pytest.raises(StoreUnavailable, match="Redis at unix://"):
        await store.instances()
    await server.start()
    assert await store.instances() == []  # nothing is persisted: it is reported again
    await store.aclose()
    await server.stop()


async def test_a_redis_that_hangs_is_said_within_the_deadline(redis_server: LocalRedis) -> None:
    store = Store(redis_server.url, timeout_s=0.2)
    await store.ping()
    assert redis_server.pid is not None
    os.kill(redis_server.pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(5):
            with pytest.raises(StoreUnavailable):
                await store.instances()
    finally:
        os.kill(redis_server.pid, signal.SIGCONT)
    assert await Store(redis_server.url).instances() == []


async def test_a_late_answer_is_never_taken_for_the_answer_of_the_next_question(redis_server: LocalRedis) -> None:
    store = Store(redis_server.url, timeout_s=0.2)
    await store.put_instance(a_status())
    assert redis_server.pid is not None
    os.kill(redis_server.pid, signal.SIGSTOP)
    with pytest.raises(StoreUnavailable):
        await store.instances()
    os.kill(redis_server.pid, signal.SIGCONT)
    assert await store.profiles() == []
    assert await store.instances() == [a_status()]
    await store.aclose()


def test_no_password_is_shown() -> None:
    store = Store("redis://user:secret@localhost:1/0?password=secret")
    assert "secret" not in store.where
    with pytest.raises(ValueError, match="redis://host:port/0"):
        Store("localhost:6379")


async def test_the_newest_of_each_name_is_kept_while_redis_is_away(tmp_path: Path) -> None:
    server = LocalRedis(tmp_path / "redis")
    await server.start()
    store = Store(server.url, timeout_s=1)
    writer = BufferedWriter(store, most_waiting=2)
    writer.put("a", lambda: store.put_instance(a_status("a", InstanceState.STARTING)))
    assert await writer.flush(5)
    await server.stop()
    writer.put("a", lambda: store.put_instance(a_status("a", InstanceState.READY)))
    until_gone = asyncio.ensure_future(writer.flush(5))
    writer.put("b", lambda: store.put_instance(a_status("b")))
    writer.put("a", lambda: store.put_instance(a_status("a", InstanceState.ASLEEP1)))
    writer.put("c", lambda: store.put_instance(a_status("c")))
    await until_async(lambda: asyncio.sleep(0, not writer.reachable), 5)
    await server.start()
    assert await until_gone
    assert {s.id: s.state for s in await store.instances()}.keys() >= {"c"}
    assert writer.reachable
    assert writer.dropped == 1  # three names, room for two
    await writer.aclose()
    await store.aclose()
    await server.stop()


async def test_a_write_that_can_never_succeed_does_not_hold_up_the_others(store: Store) -> None:
    writer = BufferedWriter(store)
    bad = a_status("bad").model_copy(update={"resident_fraction": math.nan})
    writer.put("bad", lambda: store.put_instance(bad))
    writer.put("good", lambda: store.put_instance(a_status("good")))
    assert await writer.flush(5)
    assert [s.id for s in await store.instances()] == ["good"]
    assert writer.dropped == 1
    await writer.aclose()


async def test_a_server_left_over_is_taken_over_and_not_started_twice(tmp_path: Path) -> None:
    first = LocalRedis(tmp_path / "redis")
    await first.start()
    second = LocalRedis(tmp_path / "redis")
    await second.start()
    assert second.pid == first.pid
    await second.stop()
    assert not first.running


async def test_the_socket_is_ours_alone(redis_server: LocalRedis) -> None:
    socket = Path(redis_server.url.removeprefix("unix://"))
    assert socket.stat().st_mode & 0o077 == 0
    assert socket.parent.stat().st_mode & 0o077 == 0


async def test_whoever_is_cancelled_within_a_call_ends(store: Store) -> None:
    """At whatever moment: a task that goes on would keep its process from ending."""

    async def for_ever() -> None:
        while True:
            await store.kick()

    for ticks in range(80):
        task = asyncio.create_task(for_ever())
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        ended, _ = await asyncio.wait({task}, timeout=5)
        assert ended, f"cancelled after {ticks} rounds of the loop, it goes on"
