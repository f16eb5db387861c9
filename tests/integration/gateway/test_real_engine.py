"""The official OpenAI client, unchanged, against the gateway with a real engine behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import APIError, APIStatusError, AsyncOpenAI, NotFoundError

from estiba_agent.engines.wire import DrainRequest, EnginePhase
from estiba_scheduler.domain import InstanceState, InstanceStatus
from estiba_scheduler.store import LocalRedis
from tests.builders import a_deployment, an_instance
from tests.integration.engine.running_engine import RunningEngine, a_launch
from tests.integration.engine.tiny_model import make_tiny_model
from tests.waiting import until_async

from .waterfront import DEADLINE_S, Waterfront, a_waterfront

MESSAGES: Any = [{"role": "user", "content": "Say something."}]
LONG: dict[str, Any] = {"max_tokens": 1900, "temperature": 0, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"file://{make_tiny_model(tmp_path_factory.mktemp('tiny'))}"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, tiny: str) -> Iterator[RunningEngine]:
    directory = tmp_path_factory.mktemp("e")
    running = RunningEngine(directory, a_launch(directory, tiny))
    yield running
    running.end()


@pytest.fixture
async def tiny_engine(shared: RunningEngine) -> RunningEngine:
    await shared.until_phase(EnginePhase.READY)
    return shared


@pytest.fixture
async def front(directory: Path, redis: LocalRedis) -> AsyncIterator[Waterfront]:
    async with a_waterfront(directory, redis) as waterfront:
        await waterfront.deploys(a_deployment("tiny"))
        yield waterfront


@pytest.fixture
async def client(front: Waterfront) -> AsyncIterator[AsyncOpenAI]:
    base = f"{front.http.base_url}/v1"
    async with AsyncOpenAI(base_url=base, api_key="none", max_retries=0, timeout=DEADLINE_S) as made:
        yield made


async def status_of(engine: RunningEngine, state: InstanceState = InstanceState.READY) -> InstanceStatus:
    status = an_instance("tiny", state).status
    assert status is not None
    url = await engine.url() if state is InstanceState.READY else None
    return status.model_copy(update={"id": engine.launch.instance, "url": url})


async def test_the_official_client_works_unchanged(
    front: Waterfront, client: AsyncOpenAI, tiny_engine: RunningEngine
) -> None:
    async def whole() -> Any:
        return await client.chat.completions.with_raw_response.create(
            model="tiny", messages=MESSAGES, temperature=0, max_tokens=30
        )

    held = asyncio.create_task(whole())
    await front.holds(1, "default/tiny")
    await front.reports(await status_of(tiny_engine))
    raw = await held
    assert raw.headers["x-estiba-met-state"] == "Absent"
    assert raw.headers["x-estiba-instance"] == "tiny-0001"
    answered = raw.parse()
    stream = await client.chat.completions.create(
        model="default/tiny",
        messages=MESSAGES,
        temperature=0,
        max_tokens=30,
        stream=True,
        stream_options={"include_usage": True},
    )
    assert stream.response.headers["x-estiba-met-state"] == "Ready"
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == answered.choices[0].message.content
    assert chunks[-1].usage == answered.usage
    completion = await client.completions.create(model="tiny", prompt="Stow", max_tokens=5)
    assert completion.usage is not None
    assert [model.id async for model in client.models.list()] == ["tiny"]
    assert (await client.models.retrieve("tiny")).object == "model"
    demand = await front.demand(lambda d: d.requests_total == 3 and d.in_flight == 0, "default/tiny")
    assert demand.output_tokens_mean == pytest.approx((30 + 30 + completion.usage.completion_tokens) / 3)
    with pytest.raises(NotFoundError, match="there is no model 'nobody'"):
        await client.chat.completions.create(model="nobody", messages=MESSAGES)
    with pytest.raises(APIStatusError, match="context") as too_long:
        await client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=100_000)
    assert too_long.value.status_code == 400


async def test_requests_that_a_draining_engine_hands_back_are_answered_when_it_resumes(
    front: Waterfront, client: AsyncOpenAI, tiny_engine: RunningEngine
) -> None:
    await front.reports(await status_of(tiny_engine))
    await front.state("tiny", "Ready")
    async with tiny_engine.control() as control:
        await control.drain(DrainRequest(deadline_s=5))
        asked = [asyncio.create_task(front.ask("tiny", f"{n}", max_tokens=4)) for n in range(5)]
        await front.holds(5, "default/tiny")
        await control.resume()
    ready = await status_of(tiny_engine)
    await front.reports(ready.model_copy(update={"state_since": ready.state_since + 1}))
    answers = await asyncio.gather(*asked)
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.headers["x-estiba-met-state"] for answer in answers} == {"Ready"}


async def test_s4_an_engine_of_another_instance_on_a_reused_port_does_not_answer(
    front: Waterfront, tiny_engine: RunningEngine
) -> None:
    """S4: it serves a model of the same name, and is not the one that was meant."""
    ready = await status_of(tiny_engine)
    await front.reports(ready.model_copy(update={"id": "tiny-0000"}))
    await front.state("tiny", "Ready")
    asked = front.asks("tiny", max_tokens=4)
    await front.holds(1, "default/tiny")
    assert await front.series('estiba_gateway_not_taken_total{model="default/tiny",why="wrong_engine"}') >= 1
    await front.store.delete_instance("tiny-0000")
    await front.reports(ready)
    assert (await asked).headers["x-estiba-instance"] == "tiny-0001"


async def test_an_engine_killed_within_its_answers_leaves_nobody_in_silence(
    front: Waterfront, client: AsyncOpenAI, tiny_engine: RunningEngine, tiny: str, tmp_path: Path
) -> None:
    killed = RunningEngine(tmp_path, a_launch(tmp_path, tiny, instance="tiny-0002"))
    try:
        await killed.until_phase(EnginePhase.READY)
        await front.reports(await status_of(killed))
        await front.state("tiny", "Ready")
        whole = front.asks("tiny", max_tokens=500, temperature=0, ignore_eos=True)
        stream = await client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True, **LONG)
        await anext(stream)
        await until_async(lambda: _running(killed, 2), DEADLINE_S, "both run")
    finally:
        killed.end()  # kill -9
    with pytest.raises(APIError, match="broke off"):  # a part of its answer was there
        async for _ in stream:
            pass
    await front.holds(1, "default/tiny")  # no byte of its answer was there
    await front.reports(await status_of(tiny_engine))
    answer = await whole
    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] == 500
    assert answer.headers["x-estiba-instance"] == "tiny-0001"
    await front.flies(0, "default/tiny")


async def _running(engine: RunningEngine, count: int) -> bool:
    async with engine.control() as control:
        return (await control.state()).running >= count
