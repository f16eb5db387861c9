"""A real engine process answers many clients at once, and forgets those who leave."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from estiba_agent.engines.wire import EngineState
from tests.waiting import until_async

from .running_engine import DEADLINE_S, RunningEngine

MESSAGES = [{"role": "user", "content": "Say something."}]


def asking(max_tokens: int, **changes: object) -> dict[str, object]:
    body: dict[str, object] = {"model": "tiny", "messages": MESSAGES, "temperature": 0, "max_tokens": max_tokens}
    return {**body, "ignore_eos": True, **changes}


async def text_of(http: httpx.AsyncClient, body: dict[str, object]) -> str:
    answer = await http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


async def idle(engine: RunningEngine) -> EngineState:
    async with engine.control() as control:

        async def nothing_runs() -> EngineState | None:
            state = await control.state()
            return state if state.running == state.waiting == state.kv_used_bytes == 0 else None

        found = await until_async(nothing_runs, DEADLINE_S, "nothing runs and no KV cache is held")
        assert found is not None
        return found


async def busy(engine: RunningEngine) -> None:
    async with engine.control() as control:

        async def something_runs() -> bool:
            return (await control.state()).running > 0

        await until_async(something_runs, DEADLINE_S, "something runs")


async def test_streamed_and_whole_answers_are_the_same(engine: RunningEngine) -> None:
    async with await engine.openai() as client:
        whole = await client.chat.completions.create(model="tiny", messages=MESSAGES, temperature=0, max_tokens=30)
        pieces = await client.chat.completions.create(
            model="tiny",
            messages=MESSAGES,
            temperature=0,
            max_tokens=30,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in pieces]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage


async def test_ten_requests_at_once_all_finish_with_the_answers_they_get_alone(engine: RunningEngine) -> None:
    async with await engine.http() as http:
        bodies = [asking(24, messages=[{"role": "user", "content": f"Question {n}"}]) for n in range(10)]
        alone = [await text_of(http, body) for body in bodies]
        together = await asyncio.gather(*(text_of(http, body) for body in bodies))
    assert together == alone
    await idle(engine)


async def test_a_stop_string_over_several_tokens_ends_the_answer_before_it(engine: RunningEngine) -> None:
    async with await engine.http() as http:
        text = await text_of(http, asking(40))
        stop = text[10:14]
        assert len(stop) == 4
        assert await text_of(http, asking(40, stop=[stop])) == text[: text.find(stop)]


async def test_a_stream_that_its_client_leaves_is_cancelled(engine: RunningEngine) -> None:
    before = await idle(engine)
    async with await engine.http() as http:
        async with http.stream("POST", "/v1/chat/completions", json=asking(1900, stream=True)) as stream:
            async for line in stream.aiter_lines():
                if line:
                    break
            await busy(engine)
        after = await idle(engine)
    assert after.tokens_total - before.tokens_total < 1900


async def test_a_whole_answer_that_its_client_doesn_t_wait_for_is_cancelled(engine: RunningEngine) -> None:
    before = await idle(engine)
    async with await engine.http() as http:
        asked = asyncio.create_task(text_of(http, asking(1900)))
        await busy(engine)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        after = await idle(engine)
    assert after.tokens_total - before.tokens_total < 1900


async def test_a_seed_repeats_a_draw(engine: RunningEngine) -> None:
    async with await engine.http() as http:
        drawn = [await text_of(http, asking(20, temperature=1.5, seed=seed)) for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2]


async def test_the_state_counts_what_was_served(engine: RunningEngine) -> None:
    before = await idle(engine)
    async with await engine.http() as http:
        await text_of(http, asking(20))
    after = await idle(engine)
    assert after.requests_total == before.requests_total + 1
    assert after.tokens_total == before.tokens_total + 20
    assert after.tpot_s is not None
    assert after.ttft_s is not None
    assert after.last_request_at is not None
