"""Instances take turns on a device, keep to its memory, and give it back."""

from __future__ import annotations

from estiba_agent.engines.wire import EnginePhase
from estiba_agent.supervisor import events, instructions
from estiba_scheduler.domain import DesiredState, InstanceState, Reason
from tests.builders import MIB

from .scripted_node import ScriptedNode, a_spec

EVICTED = DesiredState.EVICTED


def two_small(node: ScriptedNode) -> None:
    node.want(a_spec("a-1", budget_bytes=200 * MIB, resident_bytes=180 * MIB))
    node.want(a_spec("b-1", budget_bytes=200 * MIB, resident_bytes=180 * MIB))


def test_one_engine_starts_at_a_time_on_a_device() -> None:
    """M1."""
    node = ScriptedNode()
    two_small(node)
    node.wait(5)
    assert (node.starts("a-1"), node.starts("b-1")) == (1, 0)
    assert node.status("b-1").state is InstanceState.PENDING
    assert "a-1 is starting" in node.status("b-1").message
    node.loaded("a-1")
    assert node.starts("b-1") == 1


def test_the_turn_passes_on_when_a_start_fails() -> None:
    node = ScriptedNode()
    two_small(node)
    node.exits(1, name="a-1")
    node.wait(1)
    assert node.starts("b-1") == 1


def test_a_start_waits_for_the_memory_of_one_that_leaves() -> None:
    node = ScriptedNode()
    node.ready("a-1", budget_bytes=200 * MIB)
    node.leaked["a-1"] = 100 * MIB
    node.desire(EVICTED, "a-1")
    node.answer("a-1")
    node.exits(name="a-1")
    node.want(a_spec("b-1", budget_bytes=200 * MIB))
    node.wait(5)
    assert node.starts("b-1") == 0
    assert node.status("a-1").state is InstanceState.DRAINING
    assert node.status("a-1").device_bytes == 100 * MIB
    assert "a-1 to come back" in node.status("b-1").message
    node.leaked.clear()
    node.wait(1)
    assert node.status("a-1").state is InstanceState.EVICTED
    assert node.starts("b-1") == 1


def test_memory_that_does_not_come_back_is_a_leak_and_nothing_starts_there_until_it_is_back() -> None:
    """M7."""
    node = ScriptedNode()
    node.ready("a-1", budget_bytes=200 * MIB)
    node.leaked["a-1"] = 100 * MIB
    node.desire(EVICTED, "a-1")
    node.answer("a-1")
    node.exits(name="a-1")
    node.wait(21)
    status = node.status("a-1")
    assert (status.state, status.reason) == (InstanceState.EVICTED, Reason.DEVICE_MEMORY_LEAKED)
    assert "100 MiB of a-1" in node.machine.leaks()["cpu-0"]
    node.want(a_spec("b-1", budget_bytes=200 * MIB))
    node.wait(5)
    assert node.starts("b-1") == 0
    assert node.status("b-1").reason == Reason.DEVICE_MEMORY_LEAKED
    node.leaked.clear()
    node.wait(1)
    assert node.machine.leaks() == {}
    assert node.starts("b-1") == 1


def test_a_leak_outlives_the_instance_that_left_it() -> None:
    node = ScriptedNode()
    node.ready("a-1", budget_bytes=200 * MIB)
    node.leaked["a-1"] = 100 * MIB
    node.exits(-9, name="a-1")
    node.wait(21)
    node.feed(events.Forgotten("a-1"))
    node.wait(1)
    assert "a-1" in node.machine.leaks()["cpu-0"]


def test_a_device_that_can_t_tell_who_holds_it_is_judged_by_what_is_free() -> None:
    node = ScriptedNode(holders_known=False)
    node.ready("a-1")
    node.leaked["a-1"] = 300 * MIB
    node.exits(-9, name="a-1")
    node.wait(21)
    assert "cpu-0" in node.machine.leaks()
    node.leaked.clear()
    node.wait(1)
    assert node.machine.leaks() == {}


def test_a_start_without_room_says_by_how_much_and_fails_in_the_end() -> None:
    """M2."""
    node = ScriptedNode()
    node.ready("a-1", budget_bytes=520 * MIB)
    node.want(a_spec("b-1", budget_bytes=300 * MIB))
    node.wait(5)
    status = node.status("b-1")
    assert (status.state, status.reason) == (InstanceState.PENDING, Reason.INSUFFICIENT_MEMORY)
    assert "120 MiB short" in status.message
    assert "a-1 520 MiB" in status.message
    assert node.starts("b-1") == 0
    node.wait(100)
    status = node.status("b-1")
    assert (status.state, status.reason) == (InstanceState.FAILED, Reason.INSUFFICIENT_MEMORY)
    assert status.settled_generation == 1


def test_what_others_hold_on_the_device_counts() -> None:
    """M6."""
    node = ScriptedNode()
    node.foreign_bytes = 300 * MIB
    node.look()
    node.want(a_spec("a-1", budget_bytes=520 * MIB))
    assert node.starts("a-1") == 0
    assert "foreign 300 MiB" in node.status("a-1").message


def test_memory_that_somebody_unknown_holds_counts() -> None:
    node = ScriptedNode()
    node.leaked["stranger"] = 300 * MIB
    node.look()
    node.want(a_spec("a-1", budget_bytes=520 * MIB))
    assert node.starts("a-1") == 0
    assert "free 400 MiB" in node.status("a-1").message
    node.leaked.clear()
    node.wait(1)
    assert node.starts("a-1") == 1


def test_a_growing_resize_waits_for_room() -> None:
    node = ScriptedNode(memory_mib=800)
    node.ready("a-1", budget_bytes=320 * MIB, resident_bytes=300 * MIB)
    node.ready("b-1", budget_bytes=320 * MIB, resident_bytes=300 * MIB)
    node.change("a-1", budget_bytes=520 * MIB, resident_bytes=500 * MIB)
    node.wait(3)
    assert node.asked("a-1") == []
    assert node.status("a-1").state is InstanceState.READY
    assert "40 MiB short" in node.status("a-1").message
    node.exits(name="b-1")
    node.wait(1)
    assert node.asked("a-1") == ["residency"]


def test_a_shrinking_resize_never_waits_for_room() -> None:
    """Least of all when others have taken what it is to give back."""
    node = ScriptedNode()
    node.ready("a-1", budget_bytes=520 * MIB)
    node.foreign_bytes = 500 * MIB
    node.look()
    node.change("a-1", budget_bytes=320 * MIB, resident_bytes=300 * MIB)
    assert node.asked("a-1") == ["residency"]


def test_a_start_on_a_device_that_is_not_here_fails_in_the_end() -> None:
    """N1."""
    node = ScriptedNode()
    node.want(a_spec(device="gpu-7"))
    node.wait(5)
    assert (node.status().state, node.status().reason) == (InstanceState.PENDING, Reason.NO_DEVICE)
    node.wait(100)
    assert node.status().state is InstanceState.FAILED


def test_memory_is_looked_at_as_soon_as_it_has_changed_hands() -> None:
    node = ScriptedNode()
    node.ready()
    before = len(node.sent(instructions.LookAtDevices))
    node.put_to_sleep()
    assert len(node.sent(instructions.LookAtDevices)) > before


def test_a_loading_instance_s_memory_is_what_the_device_says() -> None:
    node = ScriptedNode()
    node.want(a_spec())
    node.leaked["a-1"] = 77 * MIB
    node.look()
    assert node.engines["a-1"].phase is EnginePhase.LOADING
    assert node.status().device_bytes == 77 * MIB


def test_a_guest_takes_its_turn_and_its_room() -> None:
    node = ScriptedNode()
    node.want(a_spec("a-1", budget_bytes=300 * MIB, resident_bytes=250 * MIB))
    node.feed(events.GuestWanted("profile-1", "cpu-0", 300 * MIB))
    assert not node.sent(instructions.AdmitGuest)
    node.loaded("a-1")
    assert node.sent(instructions.AdmitGuest) == [instructions.AdmitGuest("profile-1")]
    node.want(a_spec("b-1", budget_bytes=50 * MIB, resident_bytes=30 * MIB))
    assert node.starts("b-1") == 0
    node.feed(events.GuestStarted("profile-1"))
    assert node.starts("b-1") == 1
    node.loaded("b-1")
    node.want(a_spec("c-1", budget_bytes=100 * MIB))
    assert "profile-1 300 MiB" in node.status("c-1").message
    node.feed(events.GuestGone("profile-1"))
    assert node.starts("c-1") == 1


def test_a_guest_without_room_is_refused_with_numbers() -> None:
    node = ScriptedNode()
    node.ready("a-1", budget_bytes=520 * MIB)
    out = node.feed(events.GuestWanted("profile-1", "cpu-0", 300 * MIB))
    refused = [each for each in out if isinstance(each, instructions.RefuseGuest)]
    assert "120 MiB short" in refused[0].message
