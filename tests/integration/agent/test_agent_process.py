"""The agent as a process, with real engines of a tiny random model."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from estiba_scheduler.domain import InstanceState
from estiba_scheduler.store import LocalRedis, Store
from tests.builders import a_profile
from tests.waiting import until, until_async

from .running_agent import MIB, MODEL, START_S, RunningAgent, a_spec

READY, ASLEEP1, EVICTED = InstanceState.READY, InstanceState.ASLEEP1, InstanceState.EVICTED


@pytest.fixture
async def redis(short_dir: Path) -> AsyncIterator[str]:
    redis = LocalRedis(short_dir / "redis")
    yield await redis.start()
    await redis.stop()


@pytest.fixture
def agent(short_dir: Path) -> Iterator[RunningAgent]:
    agent = RunningAgent(short_dir)
    try:
        agent.up()
        yield agent
    finally:
        agent.sweep()


@pytest.mark.slow
async def test_a_real_engine_serves_sleeps_outlives_the_agent_wakes_and_goes(short_dir: Path, redis: str) -> None:
    agent = RunningAgent(short_dir, redis)
    store = Store(redis)
    try:
        agent.up()
        agent.want(a_spec())
        status = await agent.until(READY, 1)
        assert status.identity
        assert status.identity.model_digest
        assert status.first_ready_at
        assert status.actuations_s["start"] > 0
        assert status.offload_effective is True
        assert status.device_bytes > status.resident_bytes > 0
        assert agent.get("/v1/instances").json()[0]["status"]["device_bytes"] == status.device_bytes
        assert list(agent.series("estiba_instance_device_bytes").values()) == [status.device_bytes]
        assert list(agent.series("estiba_instance_resident_bytes").values()) == [status.resident_bytes]
        assert list(agent.series("estiba_instance_state", 'state="Ready"').values()) == [1]
        assert agent.series("estiba_actuation_seconds", 'path="start"')
        assert chat(status.url) == 200

        def held() -> bool:
            seen = agent.command("GET", "/v1/observed").json()
            (device,) = seen["node"]["devices"]
            ours = sum(view["status"]["device_bytes"] for view in seen["instances"])
            return bool(device["memory_bytes"] - device["free_bytes"] == ours == status.device_bytes)

        until(held, START_S, "the device holds what the engine holds, once its last step is over")

        small = a_spec(generation=2, resident_bytes=0, budget_bytes=60 * MIB)
        agent.want(small)
        resized = await agent.until(READY, 2)
        assert resized.resident_fraction < 1
        assert resized.offload_effective is True
        assert resized.actuations_s["resize"] > 0

        agent.want({**small, "desired": "Asleep1", "generation": 3})
        asleep = await agent.until(ASLEEP1, 3)
        assert asleep.host_bytes > 0
        assert asleep.resident_bytes == 0

        agent.kill()
        assert agent.engines() == [status.identity.pid]
        agent.again()
        agent.up()
        taken_over = agent.status()
        assert taken_over.state is ASLEEP1
        assert taken_over.identity == status.identity
        assert taken_over.first_ready_at == status.first_ready_at
        assert taken_over.state_since == asleep.state_since

        agent.want(a_spec(generation=4))
        awake = await agent.until(READY, 4)
        assert awake.identity == status.identity
        assert awake.actuations_s["wake1"] > 0
        assert chat(awake.url) == 200
        assert agent.engines() == [status.identity.pid]

        async def in_store() -> bool:
            return [(s.id, s.state) for s in await store.instances()] == [("a-1", READY)]

        await until_async(in_store, START_S)
        assert agent.command("DELETE", "/v1/instances/a-1").status_code == 409
        agent.want({**a_spec(generation=5), "desired": "Evicted"})
        gone = await agent.until(EVICTED, 5)
        assert gone.device_bytes == 0
        assert agent.engines() == []
        assert agent.command("DELETE", "/v1/instances/a-1").status_code == 204
        assert agent.series("a-1") == {}

        async def out_of_store() -> bool:
            return await store.instances() == []

        await until_async(out_of_store, START_S)
    finally:
        agent.sweep()
        await store.aclose()


def chat(url: str | None) -> int:
    body = {"model": "a", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=START_S).status_code


@pytest.mark.slow
async def test_engines_outlive_a_terminated_agent_and_go_with_a_shutdown(agent: RunningAgent) -> None:
    agent.want(a_spec())
    status = await agent.until(READY, 1)
    assert status.identity
    agent.process.send_signal(signal.SIGTERM)
    assert agent.exit_code() == 0
    assert agent.engines() == [status.identity.pid]
    agent.again()
    agent.up()
    again = agent.status()
    assert (again.state, again.message, again.identity) == (READY, status.message, status.identity), agent.story()
    assert agent.command("POST", "/v1/shutdown").status_code == 202
    assert agent.exit_code() == 0
    assert agent.engines() == []
    assert not list((agent.state / "e").iterdir())


@pytest.mark.slow
async def test_a_start_without_device_memory_is_pending_with_numbers_and_a_bad_model_fails(agent: RunningAgent) -> None:
    agent.want(a_spec(budget_bytes=300 * MIB))
    status = agent.status()
    assert (status.state, status.reason) == (InstanceState.PENDING, "InsufficientDeviceMemory")
    assert "100 MiB" in status.message
    agent.want(a_spec("b-1", model={**MODEL, "uri": "file:///nowhere"}))
    failed = await agent.until(InstanceState.FAILED, 1, "b-1")
    assert failed.reason == "BadModel"
    assert "/nowhere" in failed.message
    assert failed.log_tail


def test_commands_that_can_t_be_carried_out_say_why(agent: RunningAgent) -> None:
    elsewhere = {"deployment": "d", "model": MODEL, "device": "gpu-9"}
    for method, path, body, status, reason, words in (
        ("PUT", "/v1/instances/a-1", {"id": "a-1"}, 422, "Invalid", "body.deployment"),
        ("PUT", "/v1/instances/b-1", a_spec("a-1"), 422, "Invalid", "the path names instance b-1"),
        ("DELETE", "/v1/instances/zz", None, 404, "NoSuchInstance", "zz"),
        ("GET", "/v1/instances/zz/story", None, 404, "NoSuchInstance", "zz"),
        ("POST", "/v1/models/facts", {"model": {"uri": "file:///nowhere"}}, 422, "BadModel", "/nowhere"),
        ("POST", "/v1/models/facts", {"model": {"uri": "file:///x", "engine": "zz"}}, 422, "Invalid", "zz"),
        ("GET", "/v1/profiles/jobs/zz", None, 404, "NoSuchJob", "zz"),
        ("POST", "/v1/profiles", elsewhere, 422, "NoMatchingDevice", "cpu-0"),
        ("GET", "/v1/zz", None, 404, "Invalid", "/v1/zz"),
        ("POST", "/v1/models/facts", {"model": {"uri": "x" * 2_000_000}}, 413, "Invalid", "1 MiB"),
    ):
        answer = agent.command(method, path, body)
        assert (answer.status_code, answer.json()["error"]["reason"]) == (status, reason), answer.text
        assert words in answer.json()["error"]["message"]


def test_facts_of_a_model_are_told_without_running_it(agent: RunningAgent) -> None:
    answer = agent.command("POST", "/v1/models/facts", {"model": MODEL}).json()
    assert answer["dtype"] == "float32"
    assert answer["engine"] == "torch"
    assert sum(answer["facts"]["layer_bytes"]) + answer["facts"]["fixed_bytes"] == answer["facts"]["weight_bytes"]
    assert agent.engines() == []


def test_the_metrics_api_describes_itself_and_the_agent_is_well_without_a_store(agent: RunningAgent) -> None:
    paths = agent.get("/openapi.json").json()["paths"]
    assert {"/metrics", "/v1/devices", "/v1/instances", "/v1/profiles", "/healthz", "/readyz"} <= set(paths)
    assert agent.get("/healthz").json()["ok"] is True
    until(lambda: agent.get("/readyz").json() == {"ready": True, "store_reachable": False}, START_S)
    assert agent.series("estiba_store_reachable") == {"estiba_store_reachable": 0}


def test_a_second_agent_on_the_same_directory_is_refused(agent: RunningAgent, short_dir: Path) -> None:
    second = RunningAgent(short_dir)
    assert second.exit_code() == 3
    assert "another agent runs on" in second.story()
    assert agent.get("/readyz").is_success


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"api_host": "0.0.0.0"}, "loopback only"),
        ({"devices": ["gpu?"]}, "gpu?"),
        ({"heartbeat": 1}, "heartbeat"),
        ({"state_dir": "/tmp/" + "x" * 90}, "too long for a state directory"),
    ],
)
def test_a_configuration_that_can_t_be_used_is_told(short_dir: Path, config: dict[str, object], words: str) -> None:
    agent = RunningAgent(short_dir, **config)
    try:
        assert agent.exit_code() == 2
        assert words in agent.story()
    finally:
        agent.sweep()


async def test_a_store_that_comes_late_or_lost_its_data_is_told_everything_again(short_dir: Path) -> None:
    profile = a_profile()
    (short_dir / "s" / "profiles").mkdir(parents=True)
    (short_dir / "s" / "profiles" / "x.json").write_text(profile.model_dump_json())
    redis = LocalRedis(short_dir / "redis")
    url = await redis.start()
    await redis.stop()
    agent = RunningAgent(short_dir, url)
    store = Store(url)

    async def told() -> bool:
        nodes, profiles, instances = await store.nodes(), await store.profiles(), await store.instances()
        known = ([n.name for n in nodes], [p.key for p in profiles], [i.id for i in instances])
        return known == (["n1"], [profile.key], ["a-1"])

    try:
        agent.up()
        agent.want(a_spec(budget_bytes=300 * MIB))
        for _ in range(2):
            await redis.start()
            await until_async(told, START_S, agent.story())
            await redis.stop()
    finally:
        agent.sweep()
        await store.aclose()


async def test_documents_of_instances_that_are_no_more_are_removed(short_dir: Path, redis: str) -> None:
    store = Store(redis)
    agent = RunningAgent(short_dir, redis)
    try:
        agent.up()
        left_over = agent.want(a_spec("b-1", budget_bytes=300 * MIB)).model_copy(update={"id": "old-1"})
        await store.put_instance(left_over)

        async def tidy() -> bool:
            return [i.id for i in await store.instances()] == ["b-1"]

        await until_async(tidy, START_S, agent.story())
    finally:
        agent.sweep()
        await store.aclose()


def test_an_agent_configuration_is_a_plain_document() -> None:
    from estiba_agent.config import AgentConfig

    config = AgentConfig.model_validate_json(json.dumps({"node": "n", "state_dir": "/x", "redis_url": "unix:///r"}))
    assert AgentConfig.model_validate_json(config.model_dump_json()) == config
