"""An engine drains, sleeps, wakes and resizes in good order, or says with numbers why it does not."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

import pytest

from estiba_agent.engines.torch.refusal import Refusal, RefusalReason
from estiba_agent.engines.torch.request import Finished, Rejected, RejectionCode
from estiba_agent.engines.wire import (
    DrainRequest,
    EnginePhase,
    EngineState,
    MeasureRequest,
    ResidencyRequest,
    SleepRequest,
    WakeRequest,
)
from estiba_scheduler.domain import Reason

from .arranged import BUDGET_BYTES, KV_BYTES, Arranged, a_lifecycle
from .scripted_runtime import FIXED, WEIGHTS

WAKE = WakeRequest(resident_bytes=WEIGHTS, kv_bytes=KV_BYTES, budget_bytes=BUDGET_BYTES)


@pytest.fixture
def engine(tmp_path: Path) -> Arranged:
    return a_lifecycle(tmp_path, {"hi": "hello"})


def drain(engine: Arranged, deadline_s: float = 60.0) -> Future[EngineState]:
    reply: Future[EngineState] = Future()
    engine.lifecycle.drain(DrainRequest(deadline_s=deadline_s), reply)
    return reply


def refusal(call: object, *arguments: object) -> Refusal:
    with pytest.raises(Refusal) as caught:
        call(*arguments)  # type: ignore[operator]
    return caught.value


# -- S2: sleep while requests run


def test_sleep_is_refused_while_requests_run_with_their_number(engine: Arranged) -> None:
    engine.ask("endless", max_tokens=50)
    engine.run(steps=1)
    refused = refusal(engine.lifecycle.sleep, SleepRequest(level=1))
    assert refused.reason is RefusalReason.REQUESTS_RUNNING
    assert refused.status == 409
    assert "1 requests run" in refused.message
    assert engine.runtime.asleep == 0


def test_a_drain_lets_what_runs_finish_and_hands_back_what_waits(engine: Arranged) -> None:
    running = engine.ask("hi")
    engine.run(steps=1)
    waiting = [engine.ask("hi") for _ in range(5)]
    reply = drain(engine)
    assert engine.lifecycle.phase is EnginePhase.DRAINING
    assert all(isinstance(w.end, Rejected) and w.end.code is RejectionCode.DRAINING for w in waiting)
    engine.run()
    assert running.text == "hello"
    assert isinstance(running.end, Finished)
    assert reply.result(0).phase is EnginePhase.DRAINED


def test_s2_a_request_that_arrives_while_it_drains_or_sleeps_is_handed_back(engine: Arranged) -> None:
    engine.ask("endless", max_tokens=50)
    engine.run(steps=1)
    drain(engine)
    during = engine.ask("hi")
    engine.run()
    engine.lifecycle.sleep(SleepRequest(level=1))
    asleep = engine.ask("hi")
    assert isinstance(during.end, Rejected)
    assert isinstance(asleep.end, Rejected)
    assert (during.end.code, asleep.end.code) == (RejectionCode.DRAINING, RejectionCode.ASLEEP)
    assert during.end.code.handed_back
    assert asleep.end.code.handed_back


def test_at_the_drain_deadline_what_still_runs_is_ended(engine: Arranged) -> None:
    answer = engine.ask("endless")
    engine.run(steps=3)
    reply = drain(engine, deadline_s=10)
    engine.run(steps=3)
    assert not reply.done()
    engine.clock.now += 11
    engine.lifecycle.tick()
    assert reply.result(0).phase is EnginePhase.DRAINED
    assert isinstance(answer.end, Rejected)
    assert answer.end.code.handed_back


def test_a_drain_is_answered_at_once_when_nothing_runs(engine: Arranged) -> None:
    assert drain(engine).result(0).phase is EnginePhase.DRAINED


def test_a_resume_takes_requests_again_and_cancels_a_drain_that_waits(engine: Arranged) -> None:
    running = engine.ask("endless", max_tokens=20)
    engine.run(steps=1)
    reply = drain(engine)
    assert engine.lifecycle.resume().phase is EnginePhase.READY
    cancelled = reply.exception(0)
    assert isinstance(cancelled, Refusal)
    assert cancelled.reason is RefusalReason.DRAIN_CANCELLED
    answer = engine.ask("hi")
    engine.run()
    assert answer.text == "hello"
    assert isinstance(running.end, Finished)


# -- S1: wake without memory


@pytest.mark.parametrize("level", [1, 2])
def test_a_wake_brings_back_what_sleep_put_away(engine: Arranged, level: int) -> None:
    engine.lifecycle.sleep(SleepRequest(level=level))
    assert engine.account.held == 0
    state = engine.lifecycle.wake(WAKE)
    assert (state.phase, state.resident_bytes, state.device_bytes) == (EnginePhase.READY, WEIGHTS, WEIGHTS + KV_BYTES)
    assert f"wake{level}" in state.last_transition_s
    answer = engine.ask("hi")
    engine.run()
    assert answer.text == "hello"


def test_a_wake_without_memory_is_refused_with_the_numbers_and_works_when_there_is_room(engine: Arranged) -> None:
    engine.lifecycle.sleep(SleepRequest(level=1))
    other = engine.take_the_rest()
    need = WEIGHTS + KV_BYTES
    other.shrink(need - 1)
    refused = refusal(engine.lifecycle.wake, WAKE)
    assert (refused.reason, refused.status) == (Reason.INSUFFICIENT_MEMORY, 409)
    for figure in (need, need - 1, 1):
        assert f"({figure} bytes)" in refused.message
    assert "another" in refused.message
    assert engine.lifecycle.phase is EnginePhase.ASLEEP1
    assert "wake" not in engine.runtime.calls
    other.shrink(1)
    assert engine.lifecycle.wake(WAKE).phase is EnginePhase.READY


def test_a_wake_beyond_its_own_budget_is_refused(engine: Arranged) -> None:
    engine.lifecycle.sleep(SleepRequest(level=1))
    refused = refusal(engine.lifecycle.wake, WAKE.model_copy(update={"budget_bytes": 4000}))
    assert refused.reason is Reason.OUT_OF_MEMORY
    assert f"({WEIGHTS + KV_BYTES} bytes) are needed but the budget given is" in refused.message
    assert "wake" not in engine.runtime.calls


def test_a_wake_that_runs_out_of_room_midway_sleeps_again(engine: Arranged) -> None:
    """The room was there when it was looked at, and taken before it was used."""
    engine.lifecycle.sleep(SleepRequest(level=1))
    wake = engine.runtime.wake

    def robbed(resident_bytes: int, kv_bytes: int) -> None:
        engine.take_the_rest().shrink(WEIGHTS)
        wake(resident_bytes, kv_bytes)

    engine.runtime.wake = robbed  # type: ignore[method-assign]
    refused = refusal(engine.lifecycle.wake, WAKE)
    assert refused.reason is Reason.OUT_OF_MEMORY
    assert engine.lifecycle.phase is EnginePhase.ASLEEP1
    assert engine.account.held == 0


def test_a_wake_that_breaks_ends_the_engine_instead_of_serving_half_of_it(engine: Arranged) -> None:
    engine.lifecycle.sleep(SleepRequest(level=1))
    engine.runtime.failing_wake = OSError("the weights file is gone")
    refused = refusal(engine.lifecycle.wake, WAKE)
    assert refused.status == 500
    assert engine.lifecycle.phase is EnginePhase.FAILED
    assert "the weights file is gone" in engine.lifecycle.state().error


def test_a_wake_of_an_engine_that_is_awake_changes_nothing(engine: Arranged) -> None:
    assert engine.lifecycle.wake(WAKE).phase is EnginePhase.READY
    assert "wake" not in engine.runtime.calls


# -- S3: a wake that answers garbage


def test_garbage_after_a_wake_is_found_by_the_canary_before_a_user_sees_it(engine: Arranged) -> None:
    engine.lifecycle.sleep(SleepRequest(level=2))
    engine.runtime.garbled = True
    assert refusal(engine.lifecycle.wake, WAKE).reason is RefusalReason.CANARY_MISMATCH
    state = engine.lifecycle.state()
    assert (state.phase, state.error_reason) == (EnginePhase.FAILED, "CanaryMismatch")
    answer = engine.ask("hi")
    assert isinstance(answer.end, Rejected)
    assert answer.end.code.handed_back


# -- sleeping in steps


def test_a_sleeper_may_sleep_deeper_but_not_lighter(engine: Arranged) -> None:
    assert engine.lifecycle.sleep(SleepRequest(level=1)).phase is EnginePhase.ASLEEP1
    assert engine.lifecycle.sleep(SleepRequest(level=2)).phase is EnginePhase.ASLEEP2
    assert refusal(engine.lifecycle.sleep, SleepRequest(level=1)).reason is RefusalReason.WRONG_PHASE


def test_sleeping_twice_is_sleeping_once(engine: Arranged) -> None:
    engine.lifecycle.sleep(SleepRequest(level=1))
    engine.lifecycle.sleep(SleepRequest(level=1))
    assert engine.runtime.calls.count("sleep 1") == 1


# -- residency


def resized(resident: int, kv: int = KV_BYTES, budget: int = BUDGET_BYTES, generation: int = 2) -> ResidencyRequest:
    return ResidencyRequest(resident_bytes=resident, kv_bytes=kv, budget_bytes=budget, generation=generation)


def test_residency_changes_while_requests_run(engine: Arranged) -> None:
    answer = engine.ask("hi")
    engine.run(steps=2)
    state = engine.lifecycle.residency(resized(FIXED + 1000))
    assert (state.resident_bytes, state.generation) == (FIXED + 1000, 2)
    engine.run()
    assert answer.text == "hello"


def test_residency_without_room_leaves_everything_as_it_was(engine: Arranged) -> None:
    engine.lifecycle.residency(resized(FIXED))
    engine.take_the_rest().shrink(1000)
    held = engine.account.held
    refused = refusal(engine.lifecycle.residency, resized(WEIGHTS, kv=KV_BYTES + 1000, generation=3))
    assert refused.reason is Reason.OUT_OF_MEMORY
    assert (engine.account.held, engine.account.budget) == (held, BUDGET_BYTES)
    assert engine.lifecycle.state().resident_bytes == FIXED


def test_residency_does_not_take_the_kv_cache_of_running_requests(engine: Arranged) -> None:
    engine.ask("endless", max_tokens=100)
    engine.run(steps=1)
    refused = refusal(engine.lifecycle.residency, resized(WEIGHTS, kv=100))
    assert refused.reason is RefusalReason.KV_IN_USE


def test_a_budget_below_what_is_held_is_refused_with_the_numbers(engine: Arranged) -> None:
    refused = refusal(engine.lifecycle.residency, resized(WEIGHTS, budget=WEIGHTS))
    assert f"({WEIGHTS} bytes)" in refused.message
    assert engine.account.budget == BUDGET_BYTES


# -- fences, failures, stop


def test_a_command_older_than_the_newest_seen_is_refused(engine: Arranged) -> None:
    engine.lifecycle.residency(resized(WEIGHTS, generation=5))
    assert refusal(engine.lifecycle.sleep, SleepRequest(level=1, generation=4)).reason is Reason.STALE_GENERATION
    assert engine.lifecycle.phase is EnginePhase.READY


def test_a_failing_step_ends_the_requests_in_it_and_the_engine_goes_on(engine: Arranged) -> None:
    failed = engine.ask("hi")
    engine.runtime.fail_next = RuntimeError("bad kernel")
    engine.run(steps=1)
    assert isinstance(failed.end, Rejected)
    assert failed.end.code is RejectionCode.INTERNAL
    answer = engine.ask("hi")
    engine.run()
    assert answer.text == "hello"


def test_an_engine_whose_steps_keep_failing_calls_itself_failed(engine: Arranged) -> None:
    for _ in range(3):
        engine.ask("hi")
        engine.runtime.fail_next = RuntimeError("bad kernel")
        engine.run(steps=1)
    state = engine.lifecycle.state()
    assert state.phase is EnginePhase.FAILED
    assert "bad kernel" in state.error


def test_a_stop_waits_for_what_runs_within_its_grace(engine: Arranged) -> None:
    answer = engine.ask("hi")
    engine.run(steps=1)
    engine.lifecycle.stop(5.0)
    assert not engine.lifecycle.stopped
    engine.run()
    assert engine.lifecycle.stopped
    assert answer.text == "hello"


def test_a_sleeping_engine_stops_at_once(engine: Arranged) -> None:
    engine.lifecycle.sleep(SleepRequest(level=1))
    engine.lifecycle.stop(5.0)
    assert engine.lifecycle.stopped


# -- measuring


def test_a_measurement_has_the_steps_asked_for_and_leaves_nothing_behind(engine: Arranged) -> None:
    measured = engine.lifecycle.measure(MeasureRequest(batch=2, context_tokens=8, steps=4, warmup=1), lambda: None)
    assert measured.step_s == (0.01,) * 4
    assert measured.compute_s == pytest.approx((0.008,) * 4)
    assert (measured.batch, measured.resident_fraction) == (2, 1.0)
    assert not engine.runtime.sequences


def test_a_measurement_is_refused_while_requests_run(engine: Arranged) -> None:
    engine.ask("hi")
    refused = refusal(engine.lifecycle.measure, MeasureRequest(), lambda: None)
    assert refused.reason is RefusalReason.REQUESTS_RUNNING


def test_a_measurement_that_doesn_t_fit_says_so(engine: Arranged) -> None:
    refused = refusal(engine.lifecycle.measure, MeasureRequest(batch=64, context_tokens=100), lambda: None)
    assert refused.reason is RefusalReason.KV_FULL
    assert not engine.runtime.sequences
