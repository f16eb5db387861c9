"""The engine's thread: loading beside the faces, failing with a reason, stopping in good order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from estiba_agent.devices import DeviceOutOfMemory
from estiba_agent.engines.torch.engine_loop import EngineLoop
from estiba_agent.engines.torch.lifecycle import Lifecycle
from estiba_agent.engines.torch.loading import LoadedModel
from estiba_agent.engines.torch.refusal import Refusal, RefusalReason
from estiba_agent.engines.torch.request import Finished, Rejected, RejectionCode
from estiba_agent.engines.wire import DrainRequest, EngineLaunch, EnginePhase, MeasureRequest
from tests.waiting import until

from .arranged import Listener, a_launch, a_loaded_model, a_request

DEADLINE_S = 20.0


class Loops:
    """Makes engine loops and stops each at the end."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: list[EngineLoop] = []

    def started(self, load: object = None, linger_s: float = 30.0) -> EngineLoop:
        loop = EngineLoop(
            a_launch(self._directory),
            "http://127.0.0.1:1",
            load or (lambda launch: a_loaded_model(launch, {"hi": "hello"})),  # type: ignore[arg-type]
            failed_linger_s=linger_s,
        )
        self._made.append(loop)
        loop.start()
        return loop

    def ready(self) -> EngineLoop:
        loop = self.started()
        until(lambda: loop.state().phase is EnginePhase.READY, DEADLINE_S, "ready")
        return loop

    def end(self) -> None:
        for loop in self._made:
            loop.stop(0.0)
            loop.ended.result(DEADLINE_S)


@pytest.fixture
def loops(tmp_path: Path) -> Iterator[Loops]:
    made = Loops(tmp_path)
    yield made
    made.end()


def ask(loop: EngineLoop, prompt: str = "hi", **changes: object) -> Listener:
    listener = Listener()
    loop.generate(a_request(prompt, **changes), listener)
    return listener


def ended(listener: Listener) -> Finished | Rejected:
    end = until(lambda: listener.end, DEADLINE_S, "the answer ends")
    assert end is not None
    return end


def test_while_it_loads_requests_are_handed_back_and_commands_refused(loops: Loops) -> None:
    go_on = threading.Event()

    def load(launch: EngineLaunch) -> LoadedModel:
        assert go_on.wait(DEADLINE_S)
        return a_loaded_model(launch)

    loop = loops.started(load)
    try:
        end = ended(ask(loop))
        assert isinstance(end, Rejected)
        assert end.code is RejectionCode.LOADING
        with pytest.raises(Refusal) as refused:
            loop.drain(DrainRequest(deadline_s=1)).result(DEADLINE_S)
        assert refused.value.reason is RefusalReason.LOADING
        assert loop.fresh_state().result(0).phase is EnginePhase.LOADING
    finally:
        go_on.set()


def test_a_ready_engine_answers_and_tells_how_long_it_took_to_load(loops: Loops) -> None:
    loop = loops.ready()
    listener = ask(loop)
    assert isinstance(ended(listener), Finished)
    assert listener.text == "hello"
    state = loop.fresh_state().result(DEADLINE_S)
    assert state.load_s is not None
    assert (state.requests_total, state.running) == (1, 0)


def test_a_load_without_memory_fails_with_its_reason(loops: Loops) -> None:
    def load(launch: EngineLaunch) -> LoadedModel:
        raise DeviceOutOfMemory("4000 bytes wanted, 3000 free")

    loop = loops.started(load)
    until(lambda: loop.state().phase is EnginePhase.FAILED, DEADLINE_S)
    assert (loop.state().error_reason, loop.state().error) == ("OutOfMemory", "4000 bytes wanted, 3000 free")
    end = ended(ask(loop))
    assert isinstance(end, Rejected)
    assert end.code is RejectionCode.FAILED


def test_a_model_whose_canary_has_no_room_fails_and_is_closed(loops: Loops) -> None:
    loaded: list[LoadedModel] = []

    def load(launch: EngineLaunch) -> LoadedModel:
        loaded.append(a_loaded_model(launch, kv_bytes=10))
        return loaded[0]

    loop = loops.started(load)
    until(lambda: loop.state().phase is EnginePhase.FAILED, DEADLINE_S)
    assert loop.state().error_reason == "KvCacheFull"
    assert loaded[0].memory.held_bytes == 0


def test_a_failed_engine_ends_by_itself_after_a_while(loops: Loops) -> None:
    def load(launch: EngineLaunch) -> LoadedModel:
        raise RuntimeError("no")

    loop = loops.started(load, linger_s=0.0)
    assert loop.ended.result(DEADLINE_S).phase is EnginePhase.FAILED


def test_a_stop_while_it_loads_ends_it_when_the_load_is_done(loops: Loops) -> None:
    go_on = threading.Event()

    def load(launch: EngineLaunch) -> LoadedModel:
        assert go_on.wait(DEADLINE_S)
        return a_loaded_model(launch)

    loop = loops.started(load)
    loop.stop(5.0)
    go_on.set()
    loop.ended.result(DEADLINE_S)


def test_a_stop_answers_every_request(loops: Loops) -> None:
    loop = loops.ready()
    listeners = [ask(loop, "endless") for _ in range(20)]
    loop.stop(0.0)
    assert all(isinstance(ended(listener), Rejected | Finished) for listener in listeners)
    loop.ended.result(DEADLINE_S)
    late = ended(ask(loop))
    assert isinstance(late, Rejected)
    assert late.code is RejectionCode.STOPPING


def test_a_measurement_is_given_up_when_its_caller_goes_away(loops: Loops) -> None:
    loop = loops.ready()
    gone = threading.Event()
    gone.set()
    with pytest.raises(Refusal):
        loop.measure(MeasureRequest(), gone).result(DEADLINE_S)
    assert loop.fresh_state().result(DEADLINE_S).kv_used_bytes == 0


def test_a_command_that_breaks_is_answered_and_the_thread_goes_on(loops: Loops) -> None:
    loop = loops.ready()
    with pytest.raises(Refusal) as refused:
        loop.call(lambda lifecycle: 1 // 0).result(DEADLINE_S)
    assert refused.value.status == 500
    assert isinstance(ended(ask(loop)), Finished)


def test_should_the_thread_die_everybody_is_told(loops: Loops) -> None:
    def bug() -> None:
        raise ZeroDivisionError("a bug")

    loop = loops.ready()
    listener = Listener()

    def take_and_break(lifecycle: Lifecycle) -> None:
        lifecycle.take(a_request("endless"), listener)
        lifecycle.tick = bug  # type: ignore[method-assign]

    loop.call(take_and_break).result(DEADLINE_S)
    assert isinstance(ended(listener), Rejected)
    state = loop.ended.result(DEADLINE_S)
    assert state.phase is EnginePhase.FAILED
    assert "a bug" in state.error


def test_a_drain_is_answered_as_soon_as_nothing_runs_and_not_at_its_deadline(loops: Loops) -> None:
    stepping, go_on = threading.Event(), threading.Event()

    def held() -> None:
        stepping.set()
        assert go_on.wait(DEADLINE_S)

    loop = loops.ready()
    loop.call(lambda lifecycle: setattr(lifecycle._runtime, "before_step", held)).result(DEADLINE_S)
    listener = ask(loop, "endless")
    assert stepping.wait(DEADLINE_S)
    drained = loop.drain(DrainRequest(deadline_s=1000))
    go_on.set()
    assert drained.result(DEADLINE_S).phase is EnginePhase.DRAINED
    assert isinstance(ended(listener), Finished)
