"""What goes wrong with an engine is recognised, ends in bounded time, and is told as it is."""

from __future__ import annotations

import pytest

from estiba_agent.engines.wire import EnginePhase
from estiba_agent.supervisor import events, instructions
from estiba_agent.supervisor.diagnosis import of_exit
from estiba_agent.supervisor.events import CallKind
from estiba_scheduler.domain import DesiredState, InstanceState, Reason
from tests.builders import MIB

from .scripted_node import ScriptedNode, a_spec

RUNNING, ASLEEP1, ASLEEP2, EVICTED = DesiredState


def test_s5_an_engine_that_is_never_ready_fails_at_its_own_deadline_with_its_last_lines() -> None:
    """S5, Z5: the deadline is the spec's, not a fixed one."""
    node = ScriptedNode()
    node.want(a_spec(start_deadline_s=400))
    node.wait(390)
    assert node.status().state is InstanceState.STARTING
    node.wait(20)
    status = node.status()
    assert (status.state, status.reason) == (InstanceState.FAILED, Reason.START_TIMEOUT), node.story()
    assert node.asked() == ["stop"]
    node.exits(0, ("reading shard 3 of 7",))
    node.wait(1)
    status = node.status()
    assert status.reason == Reason.START_TIMEOUT
    assert status.log_tail == ("reading shard 3 of 7",)
    assert status.settled_generation == 1
    assert status.failures == 1
    assert node.starts() == 1, "what to do about it is for the planner"


def test_an_engine_that_runs_out_of_memory_says_so_with_its_numbers() -> None:
    """M4."""
    node = ScriptedNode()
    node.want(a_spec())
    node.engines["a-1"].phase = EnginePhase.FAILED
    node.engines["a-1"].error = ("OutOfMemory", "wanted 612 MiB, the budget is 520 MiB")
    node.poll()
    status = node.status()
    assert (status.state, status.reason) == (InstanceState.FAILED, Reason.OUT_OF_MEMORY)
    assert "612 MiB" in status.message


@pytest.mark.parametrize(
    ("code", "line", "reason"),
    [
        (1, "ERROR x: failed: OutOfMemory: 612 MiB wanted, 520 MiB given", Reason.OUT_OF_MEMORY),
        (1, "ERROR x: failed: BadModel: file:///m has no config.json", Reason.BAD_MODEL),
        (1, "torch.OutOfMemoryError: CUDA out of memory", Reason.OUT_OF_MEMORY),
        (-11, "Segmentation fault", Reason.ENGINE_EXITED),
        (-9, "loading", Reason.ENGINE_EXITED),
        (1, "ERROR x: failed: KvCacheFull: no room", Reason.ENGINE_EXITED),
        (0, "", Reason.ENGINE_EXITED),
    ],
)
def test_last_words_become_reasons(code: int, line: str, reason: Reason) -> None:
    found, message = of_exit(code, ("before", line))
    assert found is reason
    assert line.rpartition("failed: ")[2].rpartition(": ")[2] in message


def test_an_engine_that_exits_while_it_serves_has_failed_with_its_last_lines() -> None:
    node = ScriptedNode()
    node.ready()
    node.exits(-11, ("doing fine", "Segmentation fault"))
    node.wait(1)
    status = node.status()
    assert (status.state, status.reason) == (InstanceState.FAILED, Reason.ENGINE_EXITED)
    assert "SIGSEGV" in status.message
    assert status.log_tail == ("doing fine", "Segmentation fault")
    assert status.url is None
    assert status.device_bytes == 0
    assert node.starts() == 1
    assert node.machine.forgettable("a-1")


def test_a_sleeper_whose_process_dies_has_failed() -> None:
    node = ScriptedNode()
    node.ready()
    node.put_to_sleep()
    node.exits(-9)
    node.wait(1)
    assert node.status().state is InstanceState.FAILED


def test_a_failed_instance_is_evicted_or_started_anew_as_wanted() -> None:
    node = ScriptedNode(obedient=True)
    node.ready()
    node.exits(1)
    node.wait(1)
    node.desire(RUNNING)
    node.settle()
    assert node.status().state is InstanceState.READY, node.story()
    node.exits(1)
    node.wait(1)
    node.desire(EVICTED)
    node.settle()
    assert node.status().state is InstanceState.EVICTED


def test_z4_a_silent_engine_loses_its_route_and_is_killed_at_last() -> None:
    """Z4: ready follows what is seen."""
    node = ScriptedNode()
    node.ready()
    node.engines["a-1"].silent = True
    node.wait(15)
    status = node.status()
    assert (status.state, status.reason, status.url) == (InstanceState.READY, Reason.ENGINE_UNRESPONSIVE, None)
    node.wait(20)
    status = node.status()
    assert (status.state, status.reason) == (InstanceState.FAILED, Reason.ENGINE_UNRESPONSIVE)
    assert node.sent(instructions.KillGroup)
    assert "stop" not in node.asked()


def test_z4_an_engine_that_is_loaded_but_does_not_serve_is_not_ready() -> None:
    """Z4."""
    node = ScriptedNode()
    node.want(a_spec())
    node.engines["a-1"].serves = False
    node.loaded()
    node.wait(5)
    assert node.status().state is InstanceState.STARTING
    assert node.status().first_ready_at is None
    node.engines["a-1"].serves = True
    node.wait(1)
    assert node.status().state is InstanceState.READY


def test_an_engine_that_never_comes_to_serve_fails_at_its_deadline() -> None:
    node = ScriptedNode()
    node.want(a_spec())
    node.engines["a-1"].serves = False
    node.loaded()
    node.wait(110)
    assert node.status().state is InstanceState.FAILED, node.story()
    assert node.status().reason == Reason.START_TIMEOUT


def test_an_engine_that_will_not_stop_is_told_then_killed_and_the_status_says_so() -> None:
    """S6."""
    node = ScriptedNode()
    node.ready()
    node.desire(EVICTED)
    node.answer()
    told = [node.status().message]
    node.wait(3.3)
    assert node.sent(instructions.Terminate)
    told.append(node.status().message)
    assert not node.sent(instructions.KillGroup)
    node.wait(5.3)
    assert node.sent(instructions.KillGroup)
    told.append(node.status().message)
    assert told[0] == "asked to stop"
    assert "killed after" in told[1]
    assert told[2].startswith("killed")
    assert node.status().state is InstanceState.DRAINING
    node.exits(-9)
    node.wait(1)
    assert node.status().state is InstanceState.EVICTED


def test_a_drain_that_can_t_be_asked_for_does_not_keep_an_eviction() -> None:
    node = ScriptedNode()
    node.ready()
    node.desire(EVICTED)
    node.unreachable()
    assert node.asked() == ["drain", "stop"]


def test_s6_an_evicted_engine_that_answers_nothing_is_ended_all_the_same() -> None:
    node = ScriptedNode()
    node.ready()
    node.engines["a-1"].silent = True
    node.desire(EVICTED)
    node.wait(45)
    assert node.sent(instructions.KillGroup)


def test_requests_ended_by_the_drain_deadline_are_told_of() -> None:
    node = ScriptedNode()
    node.ready()
    node.desire(ASLEEP1)
    node.wait(60)
    node.answer()
    node.answer()
    assert (node.status().state, node.status().reason) == (InstanceState.ASLEEP1, Reason.DRAIN_TIMEOUT)


def test_a_refused_wake_is_verified_tried_once_more_and_then_replaced_by_a_restart() -> None:
    """S1: never retried for ever."""
    node = ScriptedNode()
    node.ready()
    node.put_to_sleep()
    node.desire(RUNNING)
    node.refuse("InsufficientDeviceMemory", "40 MiB short")
    assert node.status().state is InstanceState.ASLEEP1
    assert "40 MiB short" in node.status().message
    node.wait(2)
    node.refuse("InsufficientDeviceMemory", "40 MiB short")
    assert node.asked() == ["drain", "sleep1", "wake", "wake", "stop"]
    node.exits()
    node.wait(1)
    assert node.starts() == 2
    node.loaded()
    assert node.status().state is InstanceState.READY, node.story()
    assert node.status().settled_generation == 3


def test_a_wake_without_room_is_not_asked_for_and_says_what_is_short() -> None:
    """S1: checked before."""
    node = ScriptedNode(memory_mib=1100)
    node.ready()
    node.put_to_sleep()
    node.ready("b-1", budget_bytes=900 * MIB)
    node.desire(RUNNING)
    node.wait(5)
    status = node.status()
    assert node.asked() == ["drain", "sleep1"]
    assert (status.state, status.reason) == (InstanceState.ASLEEP1, Reason.INSUFFICIENT_MEMORY)
    assert "320 MiB short" in status.message
    assert "b-1" in status.message
    node.put_to_sleep(name="b-1")
    assert node.asked()[-1] == "wake"


def test_a_wake_that_never_finds_room_ends_in_a_failure_with_numbers() -> None:
    node = ScriptedNode(memory_mib=1100)
    node.ready()
    node.put_to_sleep()
    node.ready("b-1", budget_bytes=900 * MIB)
    node.desire(RUNNING)
    node.wait(101)
    node.exits()
    node.wait(1)
    status = node.status()
    assert (status.state, status.reason) == (InstanceState.FAILED, Reason.INSUFFICIENT_MEMORY), node.story()
    assert "320 MiB short" in status.message
    assert status.settled_generation == 3


def test_a_wake_with_a_wrong_canary_has_failed() -> None:
    """S3."""
    node = ScriptedNode()
    node.ready()
    node.put_to_sleep(2)
    node.desire(RUNNING)
    node.refuse("CanaryMismatch", "the canary generation differs")
    assert node.status().state is InstanceState.FAILED
    assert "canary generation differs" in node.status().message


def test_a_call_that_is_never_answered_is_tried_a_few_times_and_then_the_engine_is_replaced() -> None:
    node = ScriptedNode()
    node.ready()
    node.put_to_sleep()
    node.desire(RUNNING)
    tries = 0
    while "a-1" in node.pending and node.pending["a-1"].kind.value == "wake":
        node.unreachable()
        tries += 1
        node.wait(11)
    assert tries == 5
    assert node.asked()[-1] == "stop"


def test_an_engine_is_replaced_once_for_each_wish_and_not_for_ever() -> None:
    node = ScriptedNode()
    node.ready()
    node.desire(ASLEEP1)
    while node.status().state is not InstanceState.FAILED:
        call = node.pending.get("a-1")
        if call is not None and call.kind is CallKind.STOP:
            node.exits()
        elif call is not None and call.kind is CallKind.SLEEP1:
            node.unreachable()
        elif call is not None:
            node.answer()
        elif node.engines["a-1"].phase is EnginePhase.LOADING:
            node.loaded()
        node.wait(11)
        assert node.starts() <= 2, node.story()
    assert "even a new process did not help" in node.status().message


def test_the_wrong_engine_on_the_socket_is_not_believed() -> None:
    """S4."""
    node = ScriptedNode()
    node.ready()
    node.feed(events.WrongEngineSeen("a-1", "process 77 answered, 101 was meant"))
    assert (node.status().state, node.status().reason) == (InstanceState.FAILED, Reason.IDENTITY_MISMATCH)
    assert "stop" not in node.asked(), "the stop would reach the wrong engine"
    assert node.sent(instructions.KillGroup)


def test_an_offload_that_the_engine_ignored_is_told() -> None:
    """O1."""
    node = ScriptedNode()
    node.ready()
    assert node.status().offload_effective is True
    node.engines["a-1"].ignores_offload = True
    node.change(resident_bytes=300 * MIB, budget_bytes=330 * MIB)
    node.answer()
    status = node.status()
    assert (status.state, status.reason) == (InstanceState.READY, Reason.OFFLOAD_INEFFECTIVE)
    assert status.offload_effective is False
    assert status.resident_bytes == 500 * MIB
    assert "300 MiB" in status.message
    assert status.settled_generation == 2


def test_rounding_to_whole_layers_is_no_ineffective_offload() -> None:
    node = ScriptedNode()
    node.want(a_spec(resident_bytes=320 * MIB))
    node.engines["a-1"].resident_bytes = 300 * MIB
    node.loaded()
    assert node.status().offload_effective is True


def test_a_resize_that_running_requests_block_waits_for_them() -> None:
    node = ScriptedNode()
    node.ready()
    node.change(kv_bytes=1 * MIB, budget_bytes=500 * MIB)
    for _ in range(3):
        node.refuse("KvCacheInUse", "requests hold 9 MiB")
        node.wait(3)
    assert node.asked() == ["residency"] * 3 + ["drain"]
    for _ in range(3):
        node.answer()
    assert node.asked()[-3:] == ["drain", "residency", "resume"]
    node.wait(1)
    assert node.status().state is InstanceState.READY, node.story()
    assert node.status().settled_generation == 2


def test_a_resize_without_memory_leaves_the_engine_serving_and_says_so() -> None:
    node = ScriptedNode()
    node.ready()
    node.change(resident_bytes=480 * MIB)
    for _ in range(2):
        node.refuse("OutOfMemory", "the residency is unchanged: 7 MiB short")
        node.wait(2)
    status = node.status()
    assert (status.state, status.reason) == (InstanceState.READY, Reason.OUT_OF_MEMORY)
    assert "7 MiB short" in status.message
    assert status.settled_generation == 2
    assert node.asked() == ["residency"] * 2


def test_failures_in_a_row_are_counted_and_forgiven_after_a_good_while() -> None:
    node = ScriptedNode(obedient=True)
    for _ in range(2):
        if node.machine.spec("a-1") is None:
            node.want(a_spec())
        else:
            node.desire(RUNNING)
        node.exits(1)
        node.wait(1)
    assert node.status().failures == 2
    node.desire(RUNNING)
    node.settle()
    assert node.status().failures == 2
    node.wait(65)
    assert node.status().failures == 0


def test_a_process_that_can_t_be_made_is_a_failure() -> None:
    node = ScriptedNode()
    machine = node.machine
    machine.handle(events.SpecWanted(a_spec()), node.now)
    machine.handle(events.StartRefused("a-1", "Invalid", "the disk is full"), node.now)
    status = node.status()
    assert (status.state, status.message) == (InstanceState.FAILED, "the disk is full")
    assert status.settled_generation == 1


def test_first_ready_is_set_once_and_the_state_s_age_only_with_the_state() -> None:
    """Z2, Z3."""
    node = ScriptedNode(obedient=True)
    node.ready()
    first = node.status().first_ready_at
    since = node.status().state_since
    node.wait(5)
    node.engines["a-1"].running = 3
    node.wait(1)
    assert node.status().state_since == since
    node.desire(ASLEEP1)
    node.settle()
    assert node.status().reason == Reason.ASLEEP
    assert node.status().state_since > since
    node.desire(RUNNING)
    node.settle()
    assert node.status().first_ready_at == first
