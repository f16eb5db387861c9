"""Requests for a model that nobody serves yet: held, released in order, bounded."""

from __future__ import annotations

import asyncio
from pathlib import Path

from estiba_scheduler.domain import InstanceState, Reason
from estiba_scheduler.store import Decision, LocalRedis
from tests.builders import a_deployment
from tests.waiting import until_async

from .scripted_engine import TEXT, ScriptedEngine
from .waterfront import DEADLINE_S, Waterfront, a_waterfront, all_of, kicks_sent


async def test_the_first_request_after_zero_is_held_until_its_model_is_there(
    front: Waterfront, engine: ScriptedEngine
) -> None:
    """Z1: it does not fail at once."""
    asked = front.asks()
    await front.holds(1)
    await front.reports(engine.status())
    answer = await asked
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"] == TEXT
    assert answer.headers["x-estiba-met-state"] == "Absent"
    assert answer.headers["x-estiba-instance"] == "a-1"
    assert float(answer.headers["x-estiba-held-s"]) > 0


async def test_a_request_for_a_ready_model_is_not_held(front: Waterfront, engine: ScriptedEngine) -> None:
    await front.reports(engine.status())
    await front.state("a", "Ready")
    answer = await front.ask()
    assert answer.headers["x-estiba-met-state"] == "Ready"
    assert float(answer.headers["x-estiba-held-s"]) == 0


async def test_fifty_held_requests_make_one_kick(front: Waterfront, engine: ScriptedEngine) -> None:
    """Z1: many at once cause one wake."""
    before = await kicks_sent(front.redis)
    asked = [front.asks() for _ in range(50)]
    await front.holds(50)
    demand = await front.demand(lambda d: d.queued == 50)
    assert await kicks_sent(front.redis) == before + 1
    await front.reports(engine.status())
    assert {answer.status_code for answer in await all_of(asked)} == {200}
    assert demand.oldest_queued_at is not None
    assert demand.requests_total == 50


async def test_held_requests_are_released_first_come_first_served(front: Waterfront, engine: ScriptedEngine) -> None:
    """T1."""
    asked = []
    for n in range(8):
        asked.append(front.asks(content=str(n)))
        await front.holds(n + 1)
    await front.reports(engine.status())
    await all_of(asked)
    assert [exchange.content for exchange in engine.exchanges] == [str(n) for n in range(8)]


async def test_a_request_held_for_as_long_as_allowed_ends_with_503_and_retry_after(
    directory: Path, redis: LocalRedis
) -> None:
    """Z1: nor is it held for ever."""
    async with a_waterfront(directory, redis, hold_s=0.3) as front:
        answer = await front.ask()
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["error"]["code"] == "model_not_ready"
    assert answer.headers["x-estiba-met-state"] == "Absent"


async def test_who_was_held_in_vain_is_told_what_the_planner_said(directory: Path, redis: LocalRedis) -> None:
    async with a_waterfront(directory, redis, hold_s=0.3) as front:
        await front.store.append_decision(
            Decision(at=1.0, deployment="default/a", kind="Verdict", reason=Reason.ALL_PINNED, message="b is pinned")
        )
        answer = await front.ask()
    assert "PinnedModelsHoldTheDevice: b is pinned" in answer.json()["error"]["message"]


async def test_retry_after_is_what_the_last_wake_took(
    directory: Path, redis: LocalRedis, engine: ScriptedEngine
) -> None:
    async with a_waterfront(directory, redis, hold_s=0.3) as front:
        await front.reports(engine.status(InstanceState.ASLEEP2, actuations_s={"wake2": 41.2, "start": 99.0}))
        await front.state("a", "Asleep2")
        answer = await front.ask()
    assert answer.headers["retry-after"] == "42"
    assert answer.headers["x-estiba-met-state"] == "Asleep2"


async def test_no_more_requests_are_held_for_a_model_than_allowed(
    directory: Path, redis: LocalRedis, engine: ScriptedEngine
) -> None:
    async with a_waterfront(directory, redis, max_held=2) as front:
        await front.deploys(a_deployment("a"), a_deployment("b"))
        held = [front.asks(), front.asks()]
        await front.holds(2)
        refused = await front.ask()
        of_another_model = front.asks("b")
        await front.holds(1, "default/b")
        await front.reports(engine.status())
        answers = await all_of(held)
        of_another_model.cancel()
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "too_many_requests_held"
    assert "retry-after" in refused.headers
    assert [a.status_code for a in answers] == [200, 200]


async def test_bodies_of_held_requests_are_bounded_together(directory: Path, redis: LocalRedis) -> None:
    async with a_waterfront(directory, redis, max_held_bytes=2000) as front:
        held = front.asks(content="x" * 1500)
        await front.holds(1)
        refused = await front.ask(content="x" * 1500)
        held.cancel()
    assert refused.json()["error"]["code"] == "too_many_requests_held"


async def test_a_client_that_leaves_while_it_is_held_is_forgotten(front: Waterfront, engine: ScriptedEngine) -> None:
    leaving, staying = front.asks(content="leaving"), front.asks(content="staying")
    await front.holds(2)
    leaving.cancel()
    await front.holds(1)
    await front.reports(engine.status())
    await staying
    assert [exchange.content for exchange in engine.exchanges] == ["staying"]
    assert await front.series('estiba_gateway_requests_total{model="default/a",outcome="client_gone"}') == 1


async def test_requests_held_for_a_model_that_is_deleted_end_at_once(front: Waterfront) -> None:
    asked = [front.asks() for _ in range(3)]
    await front.holds(3)
    await front.deploys(a_deployment("b"))
    for answer in await all_of(asked):
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "model_not_found"


async def test_a_deployment_with_a_problem_is_not_waited_for(front: Waterfront) -> None:
    held = front.asks()
    await front.holds(1)
    await front.deploys(a_deployment("a", problem="no such file: /models/a"))
    for answer in (await held, await front.ask()):
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "model_unavailable"
        assert "no such file: /models/a" in answer.json()["error"]["message"]


async def test_a_deployment_switched_off_is_not_waited_for(front: Waterfront) -> None:
    await front.deploys(a_deployment("b", max_replicas=0))
    answer = await front.ask("b")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_unavailable")


async def test_demand_is_told_again_and_again_while_requests_wait(front: Waterfront) -> None:
    asked = front.asks()
    first = await front.demand(lambda d: d.queued == 1)
    later = await front.demand(lambda d: d.observed_at > first.observed_at)
    assert later.queued == 1
    assert later.oldest_queued_at == first.oldest_queued_at
    asked.cancel()
    await front.demand(lambda d: d.queued == 0 and d.oldest_queued_at is None)


async def test_demand_tells_rates_lengths_and_what_is_in_flight(front: Waterfront, engine: ScriptedEngine) -> None:
    await front.reports(engine.status())
    for _ in range(3):
        await front.ask()
    demand = await front.demand(lambda d: d.requests_total == 3 and d.in_flight == 0)
    assert (demand.prompt_tokens_mean, demand.output_tokens_mean) == (7, 3)
    assert demand.arrival_rate_per_s > 0
    assert demand.last_request_at is not None


async def test_the_store_may_die_while_requests_are_held(front: Waterfront, engine: ScriptedEngine) -> None:
    held = front.asks()
    await front.holds(1)
    await front.redis.stop()

    async def noticed() -> bool:
        return not (await front.http.get("/readyz")).json()["store_reachable"]

    await until_async(noticed, DEADLINE_S, "the gateway sees that Redis is away")
    assert (await front.http.get("/readyz")).status_code == 200
    assert await front.series("estiba_gateway_store_reachable") == 0
    await front.redis.start()  # and it has lost everything
    await front.deploys(a_deployment("a"))
    await front.demand(lambda d: d.queued == 1)
    await front.reports(engine.status())
    assert (await held).status_code == 200


async def test_a_wake_that_could_not_be_told_is_told_once_the_store_is_back(front: Waterfront) -> None:
    await front.redis.stop()
    asked = front.asks()
    await front.holds(1)
    await front.redis.start()

    async def told() -> bool:
        return await kicks_sent(front.redis) > 0

    await until_async(told, DEADLINE_S, "the control loop is woken")
    asked.cancel()


async def test_without_a_store_a_ready_model_is_served_and_a_held_request_still_ends(
    directory: Path, redis: LocalRedis, engine: ScriptedEngine
) -> None:
    async with a_waterfront(directory, redis, hold_s=0.5) as front:
        await front.deploys(a_deployment("a"), a_deployment("b"))
        await front.reports(engine.status())
        await front.state("a", "Ready")
        await redis.stop()
        served, held = await asyncio.gather(front.ask("a"), front.ask("b"))
    assert served.status_code == 200
    assert (held.status_code, held.json()["error"]["code"]) == (503, "model_not_ready")


async def test_a_gateway_that_never_saw_a_store_says_so(directory: Path) -> None:
    async with a_waterfront(directory, LocalRedis(directory / "redis")) as front:
        answer = await front.ask()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "gateway_starting")
        assert (await front.http.get("/readyz")).status_code == 503
        assert (await front.http.get("/healthz")).status_code == 200
