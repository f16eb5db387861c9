"""The supervisor with real processes: what it starts, asks, kills, and finds again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from estiba_agent.supervisor.course import Patience
from estiba_agent.supervisor.supervisor import NoRoom, SpecRefused
from estiba_scheduler.domain import DesiredState, InstanceState, Reason

from .supervised import SupervisedNode, a_spec

READY, ASLEEP1, EVICTED, FAILED = (
    InstanceState.READY,
    InstanceState.ASLEEP1,
    InstanceState.EVICTED,
    InstanceState.FAILED,
)


async def test_an_instance_is_started_put_away_woken_resized_and_evicted(node: SupervisedNode) -> None:
    node.want()
    status = await node.until(READY)
    assert status.url
    assert status.identity
    assert os.getsid(status.identity.pid) == status.identity.pid, "it leads its own session"
    assert status.identity.boot_id
    node.want(desired=DesiredState.ASLEEP1)
    assert (await node.until(ASLEEP1)).device_bytes == 0
    node.want(desired=DesiredState.RUNNING, resident_bytes=200)
    assert (await node.until(READY)).resident_bytes == 200
    node.want(resident_bytes=100)
    assert (await node.until(READY)).resident_bytes == 100
    node.want(desired=DesiredState.EVICTED)
    await node.until(EVICTED)
    assert node.engines() == []
    assert node.calls() == ["drain", "sleep", "wake", "residency", "drain", "stop"]
    node.supervisor.forget("a-1")
    assert node.supervisor.instances() == []
    assert not (node.directory / "a-1").exists()
    assert node.heard.gone == ["a-1"]


async def test_an_engine_revived_while_it_drains_serves_on(node: SupervisedNode) -> None:
    node.want()
    pid = (await node.until(READY)).identity
    node.script(hold=["drain"])
    node.want(desired=DesiredState.EVICTED)
    await node.until(InstanceState.DRAINING, settled=False)
    node.want(desired=DesiredState.RUNNING)
    assert (await node.until(READY)).identity == pid


async def test_an_engine_that_dies_is_failed_with_its_last_words(node: SupervisedNode) -> None:
    node.want()
    await node.until(READY)
    node.script(die="ERROR: failed: OutOfMemory: 612 bytes wanted, 400 given")
    status = await node.until(FAILED)
    assert status.reason == Reason.OUT_OF_MEMORY
    assert "612 bytes" in status.message
    assert status.log_tail[-1].endswith("400 given")


async def test_a_killed_engine_is_failed_by_its_signal(node: SupervisedNode) -> None:
    node.want()
    status = await node.until(READY)
    assert status.identity
    os.kill(status.identity.pid, signal.SIGKILL)
    status = await node.until(FAILED)
    assert status.reason == Reason.ENGINE_EXITED
    assert "SIGKILL" in status.message


async def test_an_engine_that_ignores_stop_gets_sigterm_before_it_is_killed(node: SupervisedNode) -> None:
    node.want()
    await node.until(READY)
    node.script(ignore_stop=True)
    node.want(desired=DesiredState.EVICTED, stop_grace_s=15.0)
    await node.until(EVICTED)
    assert node.log().endswith("stopped by SIGTERM")


async def test_an_engine_that_ignores_stop_and_sigterm_is_killed(node: SupervisedNode) -> None:
    node.want()
    await node.until(READY)
    node.script(stubborn=True)
    node.want(desired=DesiredState.EVICTED)
    await node.until(EVICTED)
    assert node.engines() == []


async def test_a_deaf_engine_is_killed(short_dir: Path) -> None:
    node = SupervisedNode(short_dir, Patience(unresponsive_s=0.5, silent_s=0.2))
    await node.begin()
    try:
        node.want()
        await node.until(READY)
        node.script(deaf=True)
        await node.until_status(lambda status: status.state is READY and status.url is None)
        assert (await node.until(FAILED)).reason == Reason.ENGINE_UNRESPONSIVE
        assert node.engines() == []
    finally:
        await node.end()
        node.sweep()


async def test_a_start_deadline_is_kept(node: SupervisedNode) -> None:
    node.script(load=False)
    node.want(start_deadline_s=0.5)
    status = await node.until(FAILED)
    assert status.reason == Reason.START_TIMEOUT
    assert status.log_tail
    assert node.engines() == []


async def test_a_wake_refused_for_memory_ends_in_a_restart(node: SupervisedNode) -> None:
    """S1."""
    node.want()
    first = (await node.until(READY)).identity
    node.want(desired=DesiredState.ASLEEP1)
    await node.until(ASLEEP1)
    node.script(refuse={"wake": "InsufficientDeviceMemory"})
    node.want(desired=DesiredState.RUNNING)
    status = await node.until(READY)
    assert status.identity != first
    assert node.calls().count("wake") == 2


async def test_memory_that_stays_is_a_leak(short_dir: Path) -> None:
    """M7."""
    node = SupervisedNode(short_dir, Patience(memory_back_s=0.3))
    await node.begin()
    try:
        node.want()
        await node.until(READY)
        node.hardware.held["a-1"] = 200
        node.want(desired=DesiredState.EVICTED)
        status = await node.until(EVICTED)
        assert status.reason == Reason.DEVICE_MEMORY_LEAKED
        assert "a-1" in node.supervisor.leaks()["cpu-0"]
    finally:
        await node.end()
        node.sweep()


async def test_engines_live_on_without_the_supervisor_and_the_next_one_takes_them_over(node: SupervisedNode) -> None:
    node.want()
    node.want("b-1", desired=DesiredState.ASLEEP1)
    before = {name: await node.until(state, name) for name, state in (("a-1", READY), ("b-1", ASLEEP1))}
    await node.end()
    assert len(node.engines()) == 2
    later = SupervisedNode(node.directory)
    await later.begin()
    try:
        for name, old in before.items():
            status = later.status(name)
            assert status.state is old.state
            assert status.identity == old.identity
            assert (status.state_since, status.first_ready_at) == (old.state_since, old.first_ready_at)
        assert len(later.engines()) == 2
        later.want("b-1", desired=DesiredState.RUNNING)
        await later.until(READY, "b-1")
        later.want(desired=DesiredState.EVICTED)
        await later.until(EVICTED)
    finally:
        await later.end()


async def test_an_engine_that_died_meanwhile_is_failed_not_started_again(node: SupervisedNode) -> None:
    node.want()
    await node.until(READY)
    await node.end()
    for process in node.engines():
        process.kill()
        process.wait(5)
    later = SupervisedNode(node.directory)
    await later.begin()
    try:
        assert (await later.until(FAILED)).reason == Reason.ENGINE_EXITED
        assert later.engines() == []
    finally:
        await later.end()


async def test_an_engine_whose_pid_was_never_written_down_is_found_by_its_launch(node: SupervisedNode) -> None:
    """The agent was killed between starting it and writing its record."""
    node.want()
    pid = (await node.until(READY)).identity
    await node.end()
    record = node.directory / "a-1" / "record.json"
    first = a_spec().model_dump_json()
    record.write_text(f'{{"spec": {first}, "spawning": true, "state": "Starting"}}')
    later = SupervisedNode(node.directory)
    await later.begin()
    try:
        assert (await later.until(READY)).identity == pid
        assert len(later.engines()) == 1
    finally:
        await later.end()


async def test_a_reused_pid_is_not_taken_for_the_engine(node: SupervisedNode) -> None:
    node.want()
    await node.until(READY)
    await node.end()
    for process in node.engines():
        process.kill()
        process.wait(5)
    record = node.directory / "a-1" / "record.json"
    status = node.status()
    assert status.identity
    record.write_text(record.read_text().replace(f'"pid": {status.identity.pid}', f'"pid": {os.getpid()}'))
    later = SupervisedNode(node.directory)
    await later.begin()
    try:
        assert (await later.until(FAILED)).reason == Reason.ENGINE_EXITED
    finally:
        await later.end()


async def test_an_unreadable_record_is_set_aside_and_stops_nobody(node: SupervisedNode) -> None:
    node.want()
    await node.until(READY)
    await node.end()
    bad = node.directory / "b-1"
    bad.mkdir()
    (bad / "record.json").write_text("{")
    later = SupervisedNode(node.directory)
    await later.begin()
    try:
        assert later.status().state is READY
        assert (bad / "record.bad").exists()
    finally:
        await later.end()


async def test_a_shutdown_stops_every_engine_and_leaves_nothing(node: SupervisedNode) -> None:
    node.want()
    node.want("b-1")
    await node.until(READY, "b-1")
    await node.supervisor.shut_down()
    assert node.engines() == []
    assert node.supervisor.instances() == []
    assert list(node.directory.iterdir()) == []


async def test_specs_that_can_t_be_taken_up_are_refused_in_words(node: SupervisedNode) -> None:
    node.want(generation=3)
    for changes, words in (
        ({"generation": 2}, "generation 2 of a-1 came after generation 3"),
        ({"generation": 3, "resident_bytes": 7}, "with other contents"),
        ({"generation": 4, "served_name": "z"}, "keeps its served_name"),
        ({"id": "../x"}, "can't be an instance's id"),
        ({"id": "b-1", "node": "n2"}, "is for node n2"),
    ):
        with pytest.raises(SpecRefused, match=words):
            node.supervisor.want(a_spec(**{"generation": 3, **changes}))
    node.supervisor.want(a_spec(generation=3))


async def test_what_runs_is_not_forgotten(node: SupervisedNode) -> None:
    node.want()
    await node.until(READY)
    with pytest.raises(SpecRefused, match="Ready"):
        node.supervisor.forget("a-1")


async def test_a_guest_has_its_turn_and_is_refused_without_room(node: SupervisedNode) -> None:
    node.want()
    await node.until(READY)
    async with node.supervisor.guest("profile-1", "cpu-0", 500) as loaded:
        node.want("b-1", budget_bytes=50)
        assert "profile-1 is starting" in node.status("b-1").message
        loaded()
        await node.until(READY, "b-1")
    with pytest.raises(NoRoom, match="short"):
        async with node.supervisor.guest("profile-2", "cpu-0", 600):
            pass
