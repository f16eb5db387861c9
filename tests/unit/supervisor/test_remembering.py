"""A restarted agent goes on where the last one was."""

from __future__ import annotations

from estiba_agent.supervisor import events
from estiba_agent.supervisor.machine import Machine
from estiba_agent.supervisor.record import InstanceRecord
from estiba_scheduler.domain import DesiredState, InstanceState, ProcessIdentity, Reason

from .scripted_node import PATIENCE, ScriptedEngine, ScriptedNode, a_spec


def the_next_agent(node: ScriptedNode, alive: bool, later_s: float = 5.0) -> None:
    """The machine is gone, the engine is not (unless it is); a new machine gets the record."""
    record = node.machine._kept["a-1"]  # what the edge has written
    engine = node.engines.get("a-1")
    node.machine = Machine(PATIENCE)
    node.now += later_s
    node.calls.clear()
    node.pending.clear()
    node.done.clear()
    node.engines = {"a-1": engine} if alive and engine else {}
    node.look()
    node.feed(events.Remembered(InstanceRecord.model_validate_json(record.model_dump_json()), alive, ("last line",)))


def test_an_engine_that_lives_is_taken_over_as_it_was() -> None:
    node = ScriptedNode()
    node.ready()
    since, first = node.status().state_since, node.status().first_ready_at
    the_next_agent(node, alive=True)
    assert node.status().state is InstanceState.READY
    assert node.status().url is None, "not before it has answered"
    node.wait(1)
    status = node.status()
    assert (status.state, status.state_since, status.first_ready_at) == (InstanceState.READY, since, first)
    assert status.url
    assert status.settled_generation == 1
    assert node.asked() == []
    assert node.starts() == 0
    assert status.actuations_s == {"start": 4.0}


def test_a_sleeper_is_taken_over_asleep() -> None:
    node = ScriptedNode()
    node.ready()
    node.put_to_sleep()
    the_next_agent(node, alive=True)
    node.wait(1)
    assert node.status().state is InstanceState.ASLEEP1
    assert node.asked() == []


def test_a_resize_that_was_under_way_is_asked_for_again() -> None:
    node = ScriptedNode()
    node.ready()
    node.change(resident_bytes=300 * 1024**2, budget_bytes=330 * 1024**2)
    the_next_agent(node, alive=True)
    node.wait(1)
    assert node.asked() == ["residency"]


def test_an_eviction_that_was_under_way_goes_on() -> None:
    node = ScriptedNode(obedient=True)
    node.ready()
    node.desire(DesiredState.EVICTED)
    the_next_agent(node, alive=True)
    node.settle()
    assert node.status().state is InstanceState.EVICTED


def test_an_engine_that_died_meanwhile_has_failed_and_is_not_started_again() -> None:
    node = ScriptedNode()
    node.ready()
    the_next_agent(node, alive=False)
    node.wait(1)
    status = node.status()
    assert (status.state, status.reason) == (InstanceState.FAILED, Reason.ENGINE_EXITED)
    assert status.log_tail == ("last line",)
    assert "while no agent watched" in status.message
    assert node.starts() == 0


def test_a_start_that_had_not_begun_is_begun() -> None:
    node = ScriptedNode()
    node.machine.handle(events.DevicesSeen((), node.now), node.now)
    node.machine.handle(events.SpecWanted(a_spec()), node.now)
    the_next_agent(node, alive=False)
    assert node.starts() == 1


def test_one_that_never_answers_the_new_agent_is_killed() -> None:
    node = ScriptedNode()
    node.ready()
    node.engines["a-1"].silent = True
    the_next_agent(node, alive=True)
    node.wait(35)
    assert (node.status().state, node.status().reason) == (InstanceState.FAILED, Reason.ENGINE_UNRESPONSIVE)


def test_one_that_still_loads_keeps_its_own_deadline() -> None:
    node = ScriptedNode()
    node.want(a_spec())
    engine = node.engines["a-1"]
    assert isinstance(engine, ScriptedEngine)
    assert isinstance(engine.identity, ProcessIdentity)
    the_next_agent(node, alive=True, later_s=90)
    node.wait(5)
    assert node.status().state is InstanceState.STARTING
    node.wait(10)
    assert node.status().reason == Reason.START_TIMEOUT


def test_a_settled_failure_stays_a_failure() -> None:
    node = ScriptedNode()
    node.ready()
    node.exits(1, ("failed: BadModel: no weights",))
    node.wait(1)
    the_next_agent(node, alive=False)
    node.wait(1)
    assert (node.status().state, node.status().reason) == (InstanceState.FAILED, Reason.BAD_MODEL)
    assert node.status().failures == 1
