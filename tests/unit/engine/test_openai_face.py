"""The OpenAI face answers as OpenAI's API does, and says what it doesn't serve."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from estiba_agent.engines.torch.engine_loop import EngineLoop
from estiba_agent.engines.torch.loading import LoadedModel
from estiba_agent.engines.torch.openai_api import OpenAIFace
from estiba_agent.engines.wire import EngineLaunch, EnginePhase, SleepRequest
from tests.waiting import until

from .arranged import CONTEXT, a_launch, a_loaded_model
from .scripted_runtime import END, FIRST_PIECE, VOCABULARY

DEADLINE_S = 20.0
SAYS: dict[str, str | list[int]] = {
    "user: hi": "hello there",
    "hi": "hello there",
    "system: be brief\nuser: hi": "hey",
    "emoji": list("⚓!".encode()),
}
IMAGE = {"type": "image_url", "text": "a cat"}


class Served:
    """An engine on a scripted runtime, and a client of its OpenAI face."""

    def __init__(self, loop: EngineLoop) -> None:
        self.loop = loop
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=OpenAIFace(loop).app()), base_url="http://engine", timeout=DEADLINE_S
        )

    async def chat(self, content: Any = "hi", **changes: Any) -> httpx.Response:
        messages = [{"role": "user", "content": content}]
        body = {"model": "scripted", "messages": messages, "temperature": 0, **changes}
        return await self.http.post("/v1/chat/completions", json=body)

    async def complete(self, prompt: Any = "hi", **changes: Any) -> httpx.Response:
        body = {"model": "scripted", "prompt": prompt, "temperature": 0, **changes}
        return await self.http.post("/v1/completions", json=body)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    loop = EngineLoop(a_launch(tmp_path), "http://127.0.0.1:1", lambda launch: a_loaded_model(launch, SAYS))
    loop.start()
    until(lambda: loop.state().phase is EnginePhase.READY, DEADLINE_S, "ready")
    made = Served(loop)
    yield made
    await made.http.aclose()
    loop.stop(0.0)
    loop.ended.result(DEADLINE_S)


def error(answer: httpx.Response) -> dict[str, Any]:
    document = answer.json()["error"]
    assert set(document) == {"message", "type", "param", "code"}
    return dict(document)


def events(answer: httpx.Response) -> list[Any]:
    assert answer.headers["content-type"].startswith("text/event-stream")
    data = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    return [entry if entry == "[DONE]" else json.loads(entry) for entry in data]


# -- answers


async def test_a_chat_is_answered_whole(served: Served) -> None:
    answer = (await served.chat()).json()
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "scripted"
    choice = answer["choices"][0]
    assert (choice["message"]["role"], choice["message"]["content"]) == ("assistant", "hello there")
    assert choice["finish_reason"] == "stop"
    assert answer["usage"] == {"prompt_tokens": 8, "completion_tokens": 12, "total_tokens": 20}


async def test_a_chat_is_streamed_with_role_text_reason_usage_and_an_end(served: Served) -> None:
    got = events(await served.chat(stream=True, stream_options={"include_usage": True}))
    assert got[-1] == "[DONE]"
    first, *texts, last, usage = got[:-1]
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in texts) == "hello there"
    assert {chunk["choices"][0]["finish_reason"] for chunk in texts} == {None}
    assert (last["choices"][0]["delta"], last["choices"][0]["finish_reason"]) == ({}, "stop")
    assert last["usage"] is None
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 20)
    assert len({chunk["id"] for chunk in got[:-1]}) == 1


async def test_a_stream_without_include_usage_has_no_usage(served: Served) -> None:
    got = events(await served.chat(stream=True))
    assert all("usage" not in chunk for chunk in got[:-1])


async def test_a_completion_takes_text_or_token_ids_or_a_list_with_one_of_them(served: Served) -> None:
    for prompt in ("hi", list(b"hi"), ["hi"], [list(b"hi")]):
        answer = (await served.complete(prompt)).json()
        assert answer["object"] == "text_completion"
        assert answer["choices"][0]["text"] == "hello there"


async def test_a_streamed_completion_never_has_half_a_character(served: Served) -> None:
    got = events(await served.complete("emoji", stream=True))
    assert [chunk["choices"][0]["text"] for chunk in got[:-1]] == ["⚓", "!", ""]


async def test_limits_under_both_names_end_with_length(served: Served) -> None:
    for limit in ({"max_tokens": 5}, {"max_completion_tokens": 5}):
        choice = (await served.chat(**limit)).json()["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("hello", "length")


async def test_stop_strings_end_the_answer(served: Served) -> None:
    for stop in ("o t", ["zzz", "o t"]):
        choice = (await served.chat(stop=stop)).json()["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("hell", "stop")


async def test_system_and_developer_messages_and_text_parts_reach_the_template(served: Served) -> None:
    for role in ("system", "developer"):
        messages = [
            {"role": role, "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        ]
        answer = await served.chat(messages=messages)
        assert answer.json()["choices"][0]["message"]["content"] == "hey"


async def test_unknown_fields_are_ignored(served: Served) -> None:
    assert (await served.chat(user="me", store=False, made_up={"a": 1})).status_code == 200


async def test_logit_bias_and_seed_change_what_is_drawn(served: Served) -> None:
    biased = await served.complete(max_tokens=1, logit_bias={str(ord("h")): -100, str(ord("J")): 50})
    assert biased.json()["choices"][0]["text"] == "J"
    drawn = [
        (await served.complete(max_tokens=8, temperature=2, seed=seed, logit_bias=even())).json()["choices"][0]["text"]
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def even() -> dict[str, float]:
    """Lifts the letters to where the scripted answer is, so that a draw decides."""
    return {str(letter): 100.0 for letter in b"abcdefg"}


async def test_models_are_listed_and_found_by_name(served: Served) -> None:
    listed = (await served.http.get("/v1/models")).json()
    assert [card["id"] for card in listed["data"]] == ["scripted"]
    assert (await served.http.get("/v1/models/scripted")).json()["object"] == "model"
    assert error(await served.http.get("/v1/models/other"))["code"] == "model_not_found"


# -- refusals


@pytest.mark.parametrize(
    ("changes", "status", "param", "told"),
    [
        ({"n": 2}, 400, "n", "n=1"),
        ({"logprobs": True}, 400, "logprobs", "not served"),
        ({"tools": [{"type": "function"}]}, 400, "tools", "not served"),
        ({"response_format": {"type": "json_object"}}, 400, "response_format", "only text"),
        ({"temperature": 3}, 400, "temperature", "less than or equal to 2"),
        ({"max_tokens": 0}, 400, "max_tokens", "greater than or equal to 1"),
        ({"messages": []}, 400, "messages", "at least 1"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "text": "x"}]}]},
            400,
            "messages",
            "only text",
        ),
        ({"messages": [{"role": "tool", "content": "x"}]}, 400, "messages", "can't begin with a tool"),
        ({"stream_options": {"include_usage": True}}, 400, "stream_options", "stream is true"),
        ({"stop": [""]}, 400, "stop", "1 to 1024 characters"),
        ({"logit_bias": {str(VOCABULARY): 1}}, 400, "logit_bias", "not in the vocabulary"),
        ({"model": "other"}, 404, "model", "'scripted' is"),
    ],
)
async def test_what_can_t_be_served_is_refused_by_name(
    served: Served, changes: dict[str, Any], status: int, param: str, told: str
) -> None:
    answer = await served.chat(**changes)
    assert answer.status_code == status
    refused = error(answer)
    assert (refused["type"], refused["param"]) == ("invalid_request_error", param)
    assert told in refused["message"]


@pytest.mark.parametrize("prompt", [["a", "b"], [[1], [2]], [], [[]], [VOCABULARY], [-1], ""])
async def test_a_prompt_that_is_none_or_several_or_not_of_this_model_is_refused(served: Served, prompt: Any) -> None:
    answer = await served.complete(prompt)
    assert answer.status_code == 400
    assert "prompt" in error(answer)["message"]


@pytest.mark.parametrize("changes", [{"best_of": 2}, {"echo": True}, {"suffix": "x"}, {"logprobs": 0}])
async def test_what_a_completion_can_t_have_is_refused(served: Served, changes: dict[str, Any]) -> None:
    assert error(await served.complete(**changes))["param"] == next(iter(changes))


async def test_too_long_a_conversation_is_refused_as_openai_does_it(served: Served) -> None:
    for changes in ({"content": "p" * CONTEXT}, {"max_tokens": CONTEXT}):
        for stream in (False, True):
            answer = await served.chat(**changes, stream=stream)
            assert answer.status_code == 400
            assert error(answer)["code"] == "context_length_exceeded"


async def test_a_book_is_refused_before_it_is_made_into_tokens(served: Served) -> None:
    refused = error(await served.chat("p" * 10**6))
    assert refused["code"] == "context_length_exceeded"
    assert "1000000 characters can't fit" in refused["message"]


async def test_what_is_no_json_is_refused(served: Served) -> None:
    answer = await served.http.post("/v1/chat/completions", content=b"{")
    assert answer.status_code == 400
    assert "JSON" in error(answer)["message"]


async def test_a_body_without_end_is_cut_off(served: Served) -> None:
    answer = await served.http.post("/v1/chat/completions", content=b"x" * (9 * 1024 * 1024))
    assert answer.status_code == 413
    assert "larger than" in error(answer)["message"]


async def test_a_path_that_is_not_served_is_told_in_openai_s_form(served: Served) -> None:
    assert "/v1/embeddings" in error(await served.http.post("/v1/embeddings", json={}))["message"]
    assert (await served.http.get("/v1/completions")).status_code == 405


async def test_a_model_without_a_chat_template_points_to_completions(served: Served) -> None:
    assert served.loop.model is not None
    served.loop.model.tokenizer.chat_template = None
    answer = await served.chat()
    assert answer.status_code == 400
    assert "/v1/completions" in error(answer)["message"]


async def test_special_tokens_of_a_random_model_don_t_break_the_answer(served: Served) -> None:
    answer = await served.complete([END, 255, 254], max_tokens=3)
    assert answer.json()["choices"][0]["text"] == "xxx"
    assert (await served.complete([FIRST_PIECE], max_tokens=1)).status_code == 200


# -- handing back


async def test_a_sleeping_engine_hands_requests_back(served: Served) -> None:
    served.loop.call(lambda lifecycle: lifecycle.sleep(SleepRequest(level=1))).result(DEADLINE_S)
    for stream in (False, True):
        answer = await served.chat(stream=stream)
        assert (answer.status_code, answer.headers["x-estiba-handed-back"]) == (503, "1")
        assert error(answer)["code"] == "engine_asleep"
        assert "retry-after" in answer.headers


async def test_a_loading_engine_hands_requests_back_at_once(tmp_path: Path) -> None:
    go_on = threading.Event()

    def load(launch: EngineLaunch) -> LoadedModel:
        assert go_on.wait(DEADLINE_S)
        return a_loaded_model(launch)

    loop = EngineLoop(a_launch(tmp_path), "http://127.0.0.1:1", load)
    loop.start()
    try:
        answer = await Served(loop).chat()
        assert (answer.status_code, answer.headers["x-estiba-handed-back"]) == (503, "1")
        assert error(answer)["code"] == "engine_loading"
    finally:
        go_on.set()
        loop.stop(0.0)
        loop.ended.result(DEADLINE_S)


async def test_a_step_that_fails_is_an_error_and_not_handed_back(served: Served) -> None:
    def break_a_step(lifecycle: Any) -> None:
        lifecycle._runtime.fail_next = RuntimeError("bad kernel")

    served.loop.call(break_a_step).result(DEADLINE_S)
    answer = await served.chat()
    assert answer.status_code == 500
    assert "x-estiba-handed-back" not in answer.headers
    assert error(answer)["type"] == "server_error"
