"""Requests on their way to engines and back: passed on unchanged, never to the wrong one, never ending in silence."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from estiba_scheduler.domain import InstanceState, ProcessIdentity
from estiba_scheduler.store import LocalRedis
from tests.builders import a_deployment
from tests.waiting import until_async

from .scripted_engine import (
    TEXT,
    Behaviour,
    Exchange,
    ScriptedEngine,
    answer,
    answer_of_another,
    break_before,
    break_within_the_document,
    break_within_the_stream,
    hand_back,
    never,
    stream_for_ever,
    when,
    wrong_engine,
)
from .waterfront import CHAT, DEADLINE_S, Waterfront, a_waterfront, all_of, asking


async def ready(front: Waterfront, *engines: ScriptedEngine) -> None:
    await front.reports(*(engine.status() for engine in engines))
    await front.state("a", "Ready")


def events_of(answer: httpx.Response) -> list[str]:
    return [line.removeprefix("data: ") for line in answer.text.splitlines() if line]


def code_of(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["code"])


async def test_body_and_answer_pass_unchanged(front: Waterfront, engine: ScriptedEngine) -> None:
    await ready(front, engine)
    raw = b'{ "model": "a",\n "messages": [{"role": "user", "content": "\\u00e9"}], "unknown": [1, 2.50] }'
    await front.http.post(CHAT, content=raw, headers={"authorization": "Bearer secret", "x-request-id": "r7"})
    received = engine.exchanges[0]
    assert (received.path, received.raw) == (CHAT, raw)
    assert received.headers["x-estiba-engine"] == "a-1"
    assert received.headers["x-request-id"] == "r7"
    assert "authorization" not in received.headers


async def test_an_engine_s_own_error_passes_unchanged(front: Waterfront, engine: ScriptedEngine) -> None:
    error = {"error": {"message": "too long", "type": "invalid_request_error", "param": "messages", "code": "x"}}

    async def refuse(exchange: Exchange) -> None:
        await exchange.whole(400, error, {"x-own": "1"})

    engine.script.append(refuse)
    await ready(front, engine)
    refused = await front.ask()
    assert (refused.status_code, refused.json(), refused.headers["x-own"]) == (400, error, "1")


async def test_a_full_engine_s_429_passes_with_its_retry_after(front: Waterfront, engine: ScriptedEngine) -> None:
    async def full(exchange: Exchange) -> None:
        await exchange.whole(429, {"error": {"message": "full"}}, {"retry-after": "3"})

    engine.script.append(full)
    await ready(front, engine)
    refused = await front.ask()
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "3")


async def test_a_stream_passes_event_by_event(front: Waterfront, engine: ScriptedEngine) -> None:
    go_on = asyncio.Event()

    async def in_two_parts(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.event({"n": 1})
        await go_on.wait()
        await exchange.event({"n": 2})
        await exchange.event("[DONE]")
        await exchange.end_stream()

    engine.script.append(in_two_parts)
    await ready(front, engine)
    async with front.http.stream("POST", CHAT, json=asking(stream=True)) as stream:
        assert stream.headers["x-estiba-instance"] == "a-1"
        assert stream.headers["x-estiba-met-state"] == "Ready"
        lines = (line async for line in stream.aiter_lines() if line)
        assert await anext(lines) == 'data: {"n": 1}'  # while the engine has not sent the second yet
        go_on.set()
        assert [line async for line in lines] == ['data: {"n": 2}', "data: [DONE]"]


# -- hand-backs, wrong engines, refused connections -------------------------------------------------------------------


@pytest.mark.parametrize("not_taken", [hand_back, wrong_engine, answer_of_another, break_before])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_request_that_an_engine_did_not_take_is_held_until_the_agent_reports_anew(
    front: Waterfront, engine: ScriptedEngine, not_taken: Behaviour, streamed: bool
) -> None:
    engine.script.append(not_taken)
    engine.usual = never  # it must not be asked again before it is reported anew
    await ready(front, engine)
    asked = front.asks(stream=streamed)
    await front.holds(1)
    await front.demand(lambda d: d.queued == 1)
    engine.usual = answer
    await front.reports(engine.status(state_since=2_000_000.0))
    answered = await asked
    assert answered.status_code == 200
    assert TEXT in answered.text
    assert "another model" not in answered.text
    assert answered.headers["x-estiba-met-state"] == "Ready"
    assert len(engine.exchanges) == 2


@pytest.mark.parametrize("not_taken", [hand_back, wrong_engine, break_before])
async def test_another_ready_instance_takes_over_at_once(
    front: Waterfront, engine: ScriptedEngine, other_engine: ScriptedEngine, not_taken: Behaviour
) -> None:
    engine.script.append(not_taken)
    await ready(front, engine, other_engine)
    answered = await front.ask()
    assert answered.headers["x-estiba-instance"] == "a-2"


async def test_an_engine_that_is_gone_is_not_asked_until_it_is_reported_anew(
    front: Waterfront, engine: ScriptedEngine
) -> None:
    await ready(front, engine)
    await engine.stop()
    asked = front.asks()
    await front.holds(1)
    await engine.start()
    await front.reports(engine.status(state_since=2_000_000.0))
    assert (await asked).status_code == 200


async def test_a_moment_s_refusal_is_forgotten_though_the_agent_saw_nothing(
    front: Waterfront, engine: ScriptedEngine
) -> None:
    """As when an engine drains and resumes between two looks of its agent."""
    engine.script.append(hand_back)
    await ready(front, engine)
    answers = await all_of([front.asks(content=str(n)) for n in range(5)])
    assert {a.status_code for a in answers} == {200}


async def test_requests_handed_back_keep_their_places(front: Waterfront, engine: ScriptedEngine) -> None:
    """T1, S2: the engine that drains first answers none of them; those who came first still go first."""
    draining = asyncio.Event()
    engine.usual = when(draining, hand_back)
    await ready(front, engine)
    asked = []
    for n in range(4):
        asked.append(front.asks(content=str(n)))
        await front.flies(n + 1)
    await front.reports(engine.status(InstanceState.DRAINING))
    await front.state("a", "Draining")
    late = front.asks(content="late")
    await front.holds(1)
    draining.set()
    await front.holds(5)
    engine.usual, engine.exchanges = answer, []
    await front.reports(engine.status(state_since=2_000_000.0))
    answers = await all_of([*asked, late])
    assert {a.status_code for a in answers} == {200}
    assert [exchange.content for exchange in engine.exchanges] == ["0", "1", "2", "3", "late"]


async def test_the_instance_with_the_fewest_requests_is_asked(
    front: Waterfront, engine: ScriptedEngine, other_engine: ScriptedEngine
) -> None:
    finish = asyncio.Event()
    engine.usual = other_engine.usual = when(finish, answer)
    await ready(front, engine, other_engine)
    asked = []
    for n in range(6):
        asked.append(front.asks())
        await front.flies(n + 1)
    finish.set()
    await all_of(asked)
    assert len(engine.exchanges) == len(other_engine.exchanges) == 3


async def test_an_instance_with_the_weights_of_an_earlier_model_is_not_asked(
    front: Waterfront, engine: ScriptedEngine
) -> None:
    await ready(front, engine)
    model = a_deployment("a").model.model_copy(update={"digest": "new"})
    await front.deploys(a_deployment("a", model=model))
    old = ProcessIdentity(pid=1, started_at=1.0, model_digest="old")
    await front.reports(engine.status(identity=old))
    await front.state("a", "Absent")
    asked = front.asks()
    await front.holds(1)
    await front.reports(engine.status(identity=old.model_copy(update={"model_digest": "new"})))
    assert (await asked).status_code == 200


# -- breaks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_request_without_a_byte_of_an_answer_is_tried_once_more_and_no_more(
    front: Waterfront, engine: ScriptedEngine, other_engine: ScriptedEngine, streamed: bool
) -> None:
    """So that a request that kills its engine does not kill one after the other."""
    engine.usual = other_engine.usual = break_before
    await ready(front, engine, other_engine)
    broken = await front.ask(stream=streamed)
    assert (broken.status_code, code_of(broken)) == (502, "engine_broke_off")
    assert len(engine.exchanges) + len(other_engine.exchanges) == 2


async def test_an_answer_that_breaks_off_within_its_document_is_an_error(
    front: Waterfront, engine: ScriptedEngine, other_engine: ScriptedEngine
) -> None:
    engine.usual = break_within_the_document
    await ready(front, engine, other_engine)
    broken = await front.ask()
    assert (broken.status_code, code_of(broken)) == (502, "engine_broke_off")
    assert other_engine.exchanges == []


async def test_a_stream_that_breaks_off_ends_with_an_error_event(front: Waterfront, engine: ScriptedEngine) -> None:
    engine.script.append(break_within_the_stream)
    await ready(front, engine)
    events = [json.loads(data) for data in events_of(await front.ask(stream=True))]
    assert [e["choices"][0]["delta"]["content"] for e in events[:-1]] == ["one ", "two "]
    assert events[-1]["error"]["code"] == "engine_broke_off"


async def test_a_stream_that_just_stops_is_not_taken_for_a_whole_one(front: Waterfront, engine: ScriptedEngine) -> None:
    async def stop_short(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.event({"n": 1})
        await exchange.end_stream()

    engine.script.append(stop_short)
    await ready(front, engine)
    last = json.loads(events_of(await front.ask(stream=True))[-1])
    assert last["error"]["code"] == "engine_broke_off"


async def test_an_engine_that_falls_silent_is_left(directory: Path, redis: LocalRedis, engine: ScriptedEngine) -> None:
    engine.usual = never
    async with a_waterfront(directory, redis, engine_silence_s=0.3) as front:
        await ready(front, engine)
        silent = await front.ask()
        assert (silent.status_code, code_of(silent)) == (504, "engine_timeout")
        await asyncio.wait_for(engine.exchanges[0].gone.wait(), DEADLINE_S)


# -- clients that leave -----------------------------------------------------------------------------------------------


async def test_a_client_that_leaves_before_its_answer_cancels_it_at_the_engine(
    front: Waterfront, engine: ScriptedEngine
) -> None:
    engine.usual = never
    await ready(front, engine)
    asked = front.asks()
    await front.flies(1)
    await until_async(lambda: _length(engine), DEADLINE_S, "the engine has it")
    asked.cancel()
    await asyncio.wait_for(engine.exchanges[0].gone.wait(), DEADLINE_S)
    await front.flies(0)


async def test_a_client_that_leaves_a_stream_cancels_it_at_the_engine(
    front: Waterfront, engine: ScriptedEngine
) -> None:
    engine.usual = stream_for_ever
    await ready(front, engine)
    async with front.http.stream("POST", CHAT, json=asking(stream=True)) as stream:
        await anext(stream.aiter_lines())
    await asyncio.wait_for(engine.exchanges[0].gone.wait(), DEADLINE_S)
    await front.flies(0)


async def test_a_client_that_takes_nothing_is_left(directory: Path, redis: LocalRedis, engine: ScriptedEngine) -> None:
    async def flood(exchange: Exchange) -> None:
        await exchange.begin_stream()
        while not exchange.gone.is_set():
            await exchange.chunk(b"data: " + b"x" * 60_000 + b"\n\n")

    engine.usual = flood
    async with a_waterfront(directory, redis, client_stall_s=0.3) as front:
        await ready(front, engine)
        async with front.http.stream("POST", CHAT, json=asking(stream=True)):
            await until_async(lambda: _length(engine), DEADLINE_S, "the engine has it")
            await asyncio.wait_for(engine.exchanges[0].gone.wait(), DEADLINE_S)


async def _length(engine: ScriptedEngine) -> int:
    return len(engine.exchanges)
