"""Events that pass by come whole, however they are cut up on the way."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from estiba_gateway.demand_meter import Usage
from estiba_gateway.event_stream import LONGEST_EVENT_BYTES, EventTooLong, PassingEvents, error_event

USAGE = {"usage": {"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14}}
STREAM = b'data: {"n": 1}\n\n: a comment\n\ndata: ' + json.dumps(USAGE).encode() + b"\n\ndata: [DONE]\n\n"


@given(st.lists(st.integers(min_value=0, max_value=len(STREAM)), max_size=8))
def test_however_a_stream_is_cut_the_same_bytes_pass_and_events_are_whole(cuts: list[int]) -> None:
    events, passed = PassingEvents(), b""
    marks = [0, *sorted(cuts), len(STREAM)]
    for begin, end in itertools.pairwise(marks):
        part = events.feed(STREAM[begin:end])
        assert part == b"" or part.endswith(b"\n\n")
        passed += part
    assert passed == STREAM
    assert events.complete
    assert events.usage == Usage(5, 9)
    assert not events.told_error


def test_an_event_that_breaks_off_never_passes() -> None:
    assert PassingEvents().feed(b'data: {"n": 1}\n\ndata: {"n') == b'data: {"n": 1}\n\n'


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
def test_both_kinds_of_line_ends_are_known(end: bytes) -> None:
    events = PassingEvents()
    assert events.feed(b"data: [DONE]" + end) == b"data: [DONE]" + end
    assert events.complete


def test_an_engine_s_own_error_event_is_noticed() -> None:
    events = PassingEvents()
    events.feed(error_event({"error": {"message": "out of memory"}}))
    assert events.told_error
    assert not events.complete


@pytest.mark.parametrize("text", ["the word error", "usage"])
def test_text_about_errors_and_usage_is_only_text(text: str) -> None:
    events = PassingEvents()
    events.feed(
        b"data: " + json.dumps({"choices": [{"delta": {"content": f'"{text}"'}}], "usage": None}).encode() + b"\n\n"
    )
    assert not events.told_error
    assert events.usage is None


def test_an_event_without_an_end_is_not_kept_for_ever() -> None:
    events = PassingEvents()
    events.feed(b"x" * LONGEST_EVENT_BYTES)
    with pytest.raises(EventTooLong):
        events.feed(b"x")


def test_an_error_event_is_one_event() -> None:
    event = error_event({"error": {"message": "two\nlines\n\nand more"}})
    assert event.count(b"\n\n") == 1
    assert event.endswith(b"\n\n")
