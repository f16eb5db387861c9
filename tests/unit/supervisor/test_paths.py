"""From any state to any other."""

from __future__ import annotations

import itertools

import pytest

from estiba_agent.engines.wire import EnginePhase
from estiba_agent.supervisor import events, instructions
from estiba_agent.supervisor.machine import Machine
from estiba_scheduler.domain import DesiredState, InstanceState
from tests.builders import MIB

from .scripted_node import PATIENCE, ScriptedNode, a_spec

RUNNING, ASLEEP1, ASLEEP2, EVICTED = DesiredState
END = {
    RUNNING: InstanceState.READY,
    ASLEEP1: InstanceState.ASLEEP1,
    ASLEEP2: InstanceState.ASLEEP2,
    EVICTED: InstanceState.EVICTED,
}


@pytest.mark.parametrize(("first", "then"), itertools.product(DesiredState, repeat=2))
def test_every_desired_state_is_reached_from_every_other(first: DesiredState, then: DesiredState) -> None:
    node = ScriptedNode(obedient=True)
    node.want(a_spec(desired=first))
    node.settle()
    assert node.status().state is END[first], node.story()
    node.desire(then)
    node.settle()
    status = node.status()
    assert status.state is END[then], node.story()
    assert status.settled_generation == status.observed_generation == 2


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize(("first", "then"), [(a, b) for a in DesiredState for b in DesiredState if a is not b])
def test_a_new_wish_at_any_moment_of_the_way_is_reached(first: DesiredState, then: DesiredState, steps: int) -> None:
    node = ScriptedNode(obedient=True)
    node.want(a_spec())
    node.wait(3)
    node.desire(first)
    node.wait(0.3 * steps / 2)
    node.desire(then)
    node.settle()
    assert node.status().state is END[then], node.story()
    assert node.status().settled_generation == 3


def test_a_first_start_is_pending_then_starting_then_ready() -> None:
    node = ScriptedNode()
    node.want(a_spec())
    node.wait(1)
    assert node.status().state is InstanceState.STARTING
    assert node.status().settled_generation == 0
    node.loaded()
    status = node.status()
    assert status.state is InstanceState.READY, node.story()
    assert status.settled_generation == 1
    assert status.url == "http://127.0.0.1:4001"
    assert status.actuations_s == {"start": 4.0}
    assert node.reported() == ["Starting", "Ready"]


def test_sleeping_drains_first_and_waking_takes_one_call() -> None:
    node = ScriptedNode()
    node.ready()
    node.desire(ASLEEP1)
    assert node.status().state is InstanceState.DRAINING
    assert node.status().url is None
    node.answer()
    node.answer()
    assert node.asked() == ["drain", "sleep1"]
    assert node.status().state is InstanceState.ASLEEP1
    node.desire(RUNNING)
    assert node.status().state is InstanceState.STARTING
    node.answer()
    assert node.asked() == ["drain", "sleep1", "wake"]
    assert node.status().state is InstanceState.READY
    assert node.status().actuations_s == {"start": 4.0, "sleep1": 0.2, "wake1": 0.4}


def test_a_sleeper_is_put_deeper_without_waking() -> None:
    node = ScriptedNode()
    node.ready()
    node.put_to_sleep()
    node.desire(ASLEEP2)
    node.answer()
    assert node.asked() == ["drain", "sleep1", "sleep2"]
    assert node.status().state is InstanceState.ASLEEP2


def test_a_change_of_bytes_is_one_call_while_it_serves() -> None:
    node = ScriptedNode()
    node.ready()
    node.change(resident_bytes=300 * MIB, budget_bytes=330 * MIB)
    assert node.status().state is InstanceState.READY
    assert node.status().settled_generation == 1
    node.answer()
    assert node.asked() == ["residency"]
    assert node.status().resident_bytes == 300 * MIB
    assert node.status().settled_generation == 2
    assert node.status().actuations_s["resize"] == 0.4


def test_bytes_changed_in_sleep_come_with_the_wake() -> None:
    node = ScriptedNode()
    node.ready()
    node.put_to_sleep()
    node.change(resident_bytes=300 * MIB, budget_bytes=330 * MIB)
    node.desire(RUNNING)
    call = node.answer()
    assert call.body is not None
    assert call.body.model_dump()["resident_bytes"] == 300 * MIB
    assert node.asked() == ["drain", "sleep1", "wake"]
    assert node.status().settled_generation == 4


def test_an_instance_revived_while_it_drains_is_resumed() -> None:
    """T4: a decision is made, no deadlock."""
    node = ScriptedNode()
    node.ready()
    node.engines["a-1"].running = 1
    node.desire(EVICTED)
    evict_drain = node.pending["a-1"]
    node.desire(RUNNING)
    assert node.asked() == ["drain", "resume"]
    node.answer()
    # the drain's own answer comes late and means nothing any more
    node.feed(events.EngineCallFailed("a-1", evict_drain.number, events.Trouble.REFUSED, "DrainCancelled", "resumed"))
    node.wait(1)
    assert node.status().state is InstanceState.READY, node.story()
    assert node.status().settled_generation == 3
    assert node.starts() == 1


def test_a_late_answer_to_a_call_that_was_called_off_means_nothing() -> None:
    node = ScriptedNode()
    node.ready()
    node.desire(EVICTED)
    drain, drained = node.pending["a-1"], node.engines["a-1"].state().model_copy(update={"phase": EnginePhase.DRAINED})
    node.desire(RUNNING)
    node.feed(events.EngineCallDone("a-1", drain.number, drained))
    assert node.asked() == ["drain", "resume"], "the resume is still out"


def test_a_state_asked_for_before_a_call_was_answered_means_nothing() -> None:
    node = ScriptedNode()
    node.ready()
    asked_at, awake = node.now, node.engines["a-1"].state()
    node.wait(0.3)
    node.put_to_sleep()
    node.feed(events.EngineStateSeen("a-1", awake, asked_at, serves=True))
    assert node.status().state is InstanceState.ASLEEP1


def test_an_instance_revived_while_it_stops_starts_anew() -> None:
    node = ScriptedNode()
    node.ready()
    node.desire(EVICTED)
    node.answer()
    assert node.asked()[-1] == "stop"
    node.desire(RUNNING)
    node.exits()
    node.wait(1)
    assert node.starts() == 2
    node.loaded()
    assert node.status().state is InstanceState.READY, node.story()


def test_eviction_drains_stops_and_reports_evicted_once_memory_is_back() -> None:
    node = ScriptedNode()
    node.ready()
    node.desire(EVICTED)
    node.answer()
    assert node.asked() == ["drain", "stop"]
    node.exits()
    node.wait(0.3)
    assert node.status().state is InstanceState.EVICTED, node.story()
    assert node.status().settled_generation == 2
    assert node.status().device_bytes == 0
    assert node.reported() == ["Starting", "Ready", "Draining", "Evicted"]
    assert not node.sent(instructions.KillGroup)


def test_an_instance_that_was_never_started_is_evicted_at_once() -> None:
    node = ScriptedNode()
    node.want(a_spec(desired=EVICTED))
    assert node.status().state is InstanceState.EVICTED
    assert node.starts() == 0


def test_the_record_is_kept_before_a_process_is_started() -> None:
    node = ScriptedNode()
    out = node.feed(events.SpecWanted(a_spec()))
    kinds = [type(each) for each in out]
    assert kinds.index(instructions.Keep) < kinds.index(instructions.StartProcess)
    kept = next(each for each in out if isinstance(each, instructions.Keep))
    assert kept.record.spawning


def test_the_same_events_give_the_same_instructions() -> None:
    node = ScriptedNode(obedient=True)
    node.want(a_spec())
    node.wait(3)
    node.desire(ASLEEP1)
    node.wait(3)
    node.desire(EVICTED)
    node.wait(3)
    again = Machine(PATIENCE)
    for at, event, done in node.log:
        assert again.handle(event, at) == done


def test_a_story_can_be_read() -> None:
    node = ScriptedNode()
    node.ready()
    node.put_to_sleep()
    story = node.story()
    for part in ("SpecWanted Running generation=1", "StartProcess", "EngineStateSeen Ready", "Call sleep1", "Asleep1"):
        assert part in story


def test_an_older_wish_changes_nothing() -> None:
    node = ScriptedNode()
    node.ready()
    node.desire(ASLEEP1)
    node.want(a_spec(generation=1, desired=EVICTED))
    node.answer()
    node.answer()
    assert node.status().state is InstanceState.ASLEEP1
    assert node.status().observed_generation == 2


def test_a_shutdown_drains_and_stops_everything_and_starts_nothing() -> None:
    node = ScriptedNode(obedient=True, memory_mib=2000)
    node.want(a_spec("a-1"))
    node.want(a_spec("b-1"))
    node.wait(5)
    node.feed(events.ShutdownWanted())
    assert node.asked("a-1") == node.asked("b-1") == ["drain"]
    node.want(a_spec("c-1"))
    node.wait(5)
    assert node.machine.all_gone
    assert node.starts("c-1") == 0
    assert {node.status(n).state for n in ("a-1", "b-1", "c-1")} == {InstanceState.EVICTED}
