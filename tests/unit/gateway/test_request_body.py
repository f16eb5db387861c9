"""What of a request's body the gateway reads, and what it refuses."""

from __future__ import annotations

import json

import pytest
from starlette.requests import Request
from starlette.types import Message

from estiba_gateway.refusal import Refusal
from estiba_gateway.request_body import DISCARDED_BYTES, Asked, ClientGone, read_asked


def a_request(*parts: bytes, ends: bool = True) -> Request:
    messages: list[Message] = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages.append({"type": "http.request", "body": b"", "more_body": False} if ends else {"type": "http.disconnect"})
    left = iter(messages)

    async def receive() -> Message:
        return next(left)

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


@pytest.mark.parametrize(
    "raw",
    [b"", b"hello", b"[]", b'"a"', b"{}", b'{"model": 7}', b'{"model": " "}', b"[" * 100_000, b"\xff\xfe\xfd", b'{"a"'],
    ids=["empty", "text", "list", "string", "no-model", "number", "blank", "deep", "binary", "cut-off"],
)
async def test_a_body_without_a_model_is_refused(raw: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        await read_asked(a_request(raw), 1_000_000)
    assert (refused.value.status, refused.value.code) == (400, "invalid_body")


async def test_a_model_s_name_is_bounded() -> None:
    with pytest.raises(Refusal, match="512"):
        await read_asked(a_request(json.dumps({"model": "a" * 513}).encode()), 10_000)


async def test_a_body_may_come_in_parts_up_to_the_limit() -> None:
    raw = json.dumps({"model": "a", "x": "y" * 80}).encode()
    assert (await read_asked(a_request(raw[:10], raw[10:]), len(raw))).raw == raw
    with pytest.raises(Refusal) as refused:
        await read_asked(a_request(raw[:10], raw[10:]), len(raw) - 1)
    assert refused.value.status == 413


async def test_a_body_that_has_no_end_is_not_read_to_it() -> None:
    mebibyte = b"x" * 1024 * 1024
    with pytest.raises(Refusal) as refused:
        await read_asked(a_request(*[mebibyte] * (DISCARDED_BYTES // len(mebibyte) + 2)), 1024)
    assert (refused.value.status, refused.value.headers()) == (413, {"connection": "close"})


async def test_a_client_that_leaves_within_its_body_is_gone() -> None:
    with pytest.raises(ClientGone):
        await read_asked(a_request(b'{"mod', ends=False), 1024)


def test_a_body_is_touched_only_where_the_engine_knows_another_name() -> None:
    asked = Asked(b'{ "model":"team/a" }', {"model": "team/a", "é": 1})
    assert asked.for_engine("team/a") is asked.raw
    assert json.loads(asked.for_engine("a")) == {"model": "a", "é": 1}
