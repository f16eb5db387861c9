"""Who is in the next step, and how each answer ends."""

from __future__ import annotations

import math

from estiba_agent.engines.torch.batching import Batcher
from estiba_agent.engines.torch.request import (
    Finished,
    FinishReason,
    Rejected,
    RejectionCode,
    SamplingParams,
    TextDelta,
)

from .arranged import Listener, ManualClock, a_batcher, a_request
from .scripted_runtime import FIRST_PIECE, ScriptedRuntime


def asked(batcher: Batcher, prompt: str, **changes: object) -> Listener:
    listener = Listener()
    batcher.add(a_request(prompt, **changes), listener)
    return listener


def run(batcher: Batcher) -> None:
    for _ in range(2000):
        if batcher.idle:
            return
        batcher.step()
    raise AssertionError("the batcher never got idle")


def test_an_answer_ends_with_the_model_s_end_token() -> None:
    batcher = a_batcher(ScriptedRuntime({"hi": "hello"}))
    answer = asked(batcher, "hi")
    run(batcher)
    assert (answer.text, answer.end) == ("hello", Finished(FinishReason.STOP, 2, 6))


def test_an_answer_ends_at_its_limit() -> None:
    batcher = a_batcher(ScriptedRuntime({"hi": "hello"}))
    answer = asked(batcher, "hi", max_tokens=3)
    run(batcher)
    assert (answer.text, answer.end) == ("hel", Finished(FinishReason.LENGTH, 2, 3))


def test_without_a_limit_an_answer_ends_with_the_context() -> None:
    batcher = a_batcher(ScriptedRuntime(), context_tokens=20)
    answer = asked(batcher, "hi")
    run(batcher)
    assert answer.end == Finished(FinishReason.LENGTH, 2, 18)


def test_a_stop_string_across_token_boundaries_ends_the_answer_before_it() -> None:
    runtime = ScriptedRuntime({"hi": [ord("a"), FIRST_PIECE, FIRST_PIECE + 1, ord("z")]}, pieces=(b"b ST", b"OP c"))
    answer = asked(batcher := a_batcher(runtime), "hi", stop=("STOP",))
    run(batcher)
    assert (answer.text, answer.end) == ("ab ", Finished(FinishReason.STOP, 2, 3))


def test_an_end_token_is_passed_over_when_the_caller_wants_it_so() -> None:
    batcher = a_batcher(ScriptedRuntime({"hi": "ok"}))
    answer = asked(batcher, "hi", max_tokens=5, ignore_eos=True)
    run(batcher)
    assert answer.end == Finished(FinishReason.LENGTH, 2, 5)


def test_ten_requests_at_once_all_finish_with_their_own_answers() -> None:
    runtime = ScriptedRuntime({f"q{n}.": f"answer {n}" for n in range(10)})
    batcher = a_batcher(runtime, max_batch=4)
    answers = [asked(batcher, f"q{n}.", max_tokens=20) for n in range(10)]
    run(batcher)
    assert [answer.text for answer in answers] == [f"answer {n}" for n in range(10)]
    assert not runtime.sequences
    assert max(len(step) for step in runtime.steps) == 4


def test_a_long_prompt_goes_in_by_pieces_while_others_go_on() -> None:
    runtime = ScriptedRuntime()
    batcher = a_batcher(runtime, chunk_tokens=16)
    quick = asked(batcher, "hi", max_tokens=50)
    batcher.step()
    asked(batcher, "p" * 100, max_tokens=5)
    seen = len(quick.text)
    for _ in range(6):
        batcher.step()
    assert len(quick.text) == seen + 6
    assert [len(tokens) for _, tokens in runtime.steps[-1]] == [1, 16]


def test_prompts_share_the_chunk_in_order_of_arrival() -> None:
    runtime = ScriptedRuntime()
    batcher = a_batcher(runtime, chunk_tokens=16)
    for _ in range(3):
        asked(batcher, "p" * 10, max_tokens=5)
    batcher.step()
    assert [len(tokens) for _, tokens in runtime.steps[0]] == [10, 6]


def test_a_request_waits_until_its_kv_cache_is_free() -> None:
    runtime = ScriptedRuntime(kv_bytes=500)  # 50 tokens
    batcher = a_batcher(runtime)
    first, second = asked(batcher, "a", max_tokens=30), asked(batcher, "b", max_tokens=30)
    batcher.step()
    assert (batcher.running, batcher.waiting) == (1, 1)
    run(batcher)
    assert isinstance(first.end, Finished)
    assert isinstance(second.end, Finished)


def test_a_request_longer_than_the_context_is_refused_at_once_with_the_numbers() -> None:
    batcher = a_batcher(ScriptedRuntime(), context_tokens=20)
    answer = asked(batcher, "p" * 15, max_tokens=10)
    assert isinstance(answer.end, Rejected)
    assert answer.end.code is RejectionCode.CONTEXT_LENGTH
    assert "15 prompt tokens and up to 10 generated tokens make 25, but the context is 20" in answer.end.message
    assert batcher.idle


def test_a_request_that_the_kv_budget_can_never_hold_is_refused() -> None:
    batcher = a_batcher(ScriptedRuntime(kv_bytes=100), kv_capacity_tokens=10)
    answer = asked(batcher, "hi", max_tokens=50)
    run(batcher)
    assert isinstance(answer.end, Rejected)
    assert answer.end.code is RejectionCode.CONTEXT_LENGTH
    assert "the KV cache budget in force is 10 tokens" in answer.end.message


def test_a_request_for_which_the_device_has_no_room_right_now_may_come_again() -> None:
    batcher = a_batcher(ScriptedRuntime(kv_bytes=100), kv_capacity_tokens=100)
    answer = asked(batcher, "hi", max_tokens=50)
    run(batcher)
    assert isinstance(answer.end, Rejected)
    assert answer.end.code is RejectionCode.QUEUE_FULL


def test_a_full_queue_says_so() -> None:
    batcher = a_batcher(ScriptedRuntime(), waiting=1)
    asked(batcher, "a")
    answer = asked(batcher, "b")
    assert isinstance(answer.end, Rejected)
    assert answer.end.code is RejectionCode.QUEUE_FULL


def test_a_request_does_not_wait_for_ever() -> None:
    clock = ManualClock()
    batcher = a_batcher(ScriptedRuntime(), clock, max_batch=1, waiting_s=60)
    asked(batcher, "a", max_tokens=100)
    answer = asked(batcher, "b")
    batcher.step()
    clock.now += 61
    batcher.step()
    assert isinstance(answer.end, Rejected)
    assert answer.end.code is RejectionCode.QUEUE_FULL


def test_a_cancelled_request_gives_its_memory_back_and_the_others_go_on() -> None:
    runtime = ScriptedRuntime()
    batcher = a_batcher(runtime)
    gone, stays = Listener(), asked(batcher, "b", max_tokens=10)
    request = a_request("a", max_tokens=10)
    batcher.add(request, gone)
    batcher.step()
    assert batcher.cancel(request.id)
    assert len(runtime.sequences) == 1
    run(batcher)
    assert gone.end is None
    assert isinstance(stays.end, Finished)


def test_a_request_can_be_cancelled_while_it_waits() -> None:
    batcher = a_batcher(ScriptedRuntime(), max_batch=1)
    asked(batcher, "a", max_tokens=10)
    request = a_request("b")
    batcher.add(request, Listener())
    batcher.step()
    assert batcher.cancel(request.id)
    assert batcher.waiting == 0


def test_one_answer_whose_logits_are_not_finite_ends_alone() -> None:
    class HalfBroken(ScriptedRuntime):
        def step(self, items):  # type: ignore[no-untyped-def]
            logits = super().step(items)
            for row, (sequence, _) in zip(logits, items, strict=True):
                if sequence.fed[0] == ord("b"):
                    row.fill_(math.nan)
            return logits

    batcher = a_batcher(HalfBroken({"a": "fine"}))
    good = asked(batcher, "a")
    bad = asked(batcher, "b", sampling=SamplingParams(temperature=1.0))
    run(batcher)
    assert good.text == "fine"
    assert isinstance(bad.end, Rejected)
    assert bad.end.code is RejectionCode.INTERNAL


def test_what_a_client_has_seen_is_not_handed_back() -> None:
    batcher = a_batcher(ScriptedRuntime())
    streaming, whole = asked(batcher, "a", streaming=True), asked(batcher, "b", streaming=False)
    batcher.step()
    batcher.end_running(RejectionCode.DRAINING, "drained")
    assert isinstance(streaming.events[0], TextDelta)
    assert isinstance(streaming.end, Rejected)
    assert not streaming.end.code.handed_back
    assert isinstance(whole.end, Rejected)
    assert whole.end.code.handed_back


def test_steps_with_a_prompt_in_them_don_t_count_as_decode_steps() -> None:
    batcher = a_batcher(ScriptedRuntime())
    asked(batcher, "a", max_tokens=2)
    batcher.step()
    assert batcher.figures.tpot_s is None
    batcher.step()
    assert batcher.figures.tpot_s == 0.01
    assert batcher.figures.tokens_total == 2


def test_an_answer_that_ends_within_a_character_shows_that_something_is_missing() -> None:
    batcher = a_batcher(ScriptedRuntime({"hi": list(b"ok\xf0\x9f")}))
    answer = asked(batcher, "hi")
    run(batcher)
    assert answer.text == "ok\ufffd"
