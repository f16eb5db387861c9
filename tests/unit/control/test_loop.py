from __future__ import annotations

import asyncio
import itertools
import logging

import pytest

from estiba_scheduler.control import CannotObserve, ControlLoop
from estiba_scheduler.domain import (
    ActionKind,
    DesiredState,
    InstanceState,
    Plan,
    PlannerMemory,
    Reason,
    Snapshot,
    Verdict,
)
from estiba_scheduler.planning import plan
from estiba_scheduler.policies import PlanFunction
from tests.builders import MIB, NOW, a_demand, a_deployment, an_instance
from tests.waiting import until_async

from .scripted_world import ScriptedWorld, an_action, decider, kinds


def a_loop(world: ScriptedWorld, decide: PlanFunction = plan, **changes: float) -> ControlLoop:
    return ControlLoop(world, world, decide, world.clock, lambda name: f"{name}-new", **changes)


async def test_a_request_for_an_absent_model_starts_it_with_what_was_decided() -> None:
    world = ScriptedWorld()
    world.deployments = [a_deployment("a")]
    world.demand = [a_demand("a", waits=0.1)]
    await a_loop(world).one_pass()
    (spec,) = world.wanted
    assert (spec.id, spec.deployment, spec.served_name, spec.generation) == ("a-new", "default/a", "a", 1)
    assert spec.desired is DesiredState.RUNNING
    assert spec.resident_bytes > 0
    assert spec.kv_bytes > 0
    (decision,) = [d for d in world.decisions if d.kind == "Start"]
    assert (decision.instance, decision.reason) == ("a-new", Reason.DEMAND)
    assert decision.numbers
    assert "1 request waits" in decision.message


async def test_each_change_is_the_next_generation_and_keeps_what_it_does_not_change() -> None:
    world = ScriptedWorld()
    world.deployments = [a_deployment(name) for name in "abc"]
    world.instances = [an_instance(name, resident_mib=100) for name in "abc"]
    acts = [
        an_action(ActionKind.SLEEP, "a", level=2),
        an_action(ActionKind.EVICT, "b"),
        an_action(ActionKind.RESIZE, "c", resident_bytes=50 * MIB),
    ]
    await a_loop(world, decider(*acts)).one_pass()
    slept, evicted, resized = sorted(world.wanted, key=lambda spec: spec.id)
    assert [spec.generation for spec in (slept, evicted, resized)] == [4, 4, 4]
    assert (slept.desired, evicted.desired) == (DesiredState.ASLEEP2, DesiredState.EVICTED)
    assert slept.resident_bytes == 100 * MIB, "what it had is what it gets back unless decided otherwise"
    assert (resized.desired, resized.resident_bytes) == (DesiredState.RUNNING, 50 * MIB)


async def test_what_failed_does_not_keep_the_others_from_being_done() -> None:
    world = ScriptedWorld()
    world.deployments = [a_deployment("a"), a_deployment("b")]
    world.instances = [an_instance(name, resident_mib=100) for name in "ab"]
    world.failing = {"a-1"}
    await a_loop(world, decider(an_action(ActionKind.SLEEP, "a"), an_action(ActionKind.SLEEP, "b"))).one_pass()
    assert [spec.id for spec in world.wanted] == ["b-1"]
    assert kinds(world.decisions) == ["Sleep"], "what was not done is not told as decided"


async def test_an_effect_that_never_answers_holds_nothing_up() -> None:
    world = ScriptedWorld()
    world.deployments = [a_deployment("a"), a_deployment("b")]
    world.instances = [an_instance(name, resident_mib=100) for name in "ab"]
    world.stuck = {"a-1"}
    acts = decider(an_action(ActionKind.SLEEP, "a"), an_action(ActionKind.SLEEP, "b"))
    await a_loop(world, acts, effect_deadline_s=0.01).one_pass()
    assert [spec.id for spec in world.wanted] == ["b-1"]


async def test_what_keeps_failing_is_tried_ever_more_rarely() -> None:
    world = ScriptedWorld()
    world.deployments = [a_deployment("a")]
    world.instances = [an_instance("a", resident_mib=100)]
    world.failing = {"a-1"}
    loop = a_loop(world, decider(an_action(ActionKind.SLEEP, "a")))
    tried_at = []
    for _ in range(600):
        before = len(world.tried)
        await loop.one_pass()
        if len(world.tried) > before:
            tried_at.append(world.now - NOW)
        world.now += 0.1
    gaps = [round(b - a, 1) for a, b in itertools.pairwise(tried_at)]
    assert gaps == sorted(gaps)
    assert gaps[0] < 1
    assert gaps[-1] > 10
    world.failing = set()
    world.now += 60
    await loop.one_pass()
    assert len(world.wanted) == 1


async def test_without_a_view_nothing_is_decided_and_the_loop_goes_on_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = ScriptedWorld()
    world.deployments = [a_deployment("a")]
    world.instances = [an_instance("a", resident_mib=100)]
    world.away = True
    loop = a_loop(world, decider(an_action(ActionKind.EVICT, "a")), period_s=0.05)
    with pytest.raises(CannotObserve):
        await loop.one_pass()
    with caplog.at_level(logging.WARNING):
        task = asyncio.create_task(loop.run())
        await until_async(lambda: _is(world.looks_in_vain > 3), 5)
        assert loop.problems == ("the agent does not answer",)
        assert not world.tried
        assert loop.passes == 0
        world.away = False
        await until_async(lambda: _is(bool(world.wanted)), 5)
        task.cancel()
    assert loop.problems == ()
    assert [r.message for r in caplog.records].count(
        "the agent does not answer; nothing is decided until that is over"
    ) == 1, "an outage is told once, not once a pass"


async def test_a_planner_that_breaks_is_told_and_does_not_end_the_loop() -> None:
    world = ScriptedWorld()
    calls = 0

    def sometimes(snapshot: Snapshot, now: float) -> Plan:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ZeroDivisionError("no bytes")
        return Plan(memory=snapshot.memory)

    loop = a_loop(world, sometimes, period_s=10)
    task = asyncio.create_task(loop.run())
    await until_async(lambda: _is("ZeroDivisionError: no bytes" in " ".join(loop.problems)), 5)
    loop.kick()
    await until_async(lambda: _is(loop.passes == 1 and loop.problems == ()), 5)
    task.cancel()


async def test_kicks_that_come_together_are_one_pass() -> None:
    world = ScriptedWorld()
    loop = a_loop(world, decider(), period_s=60)
    task = asyncio.create_task(loop.run())
    await until_async(lambda: _is(loop.passes == 1), 5)
    for _ in range(100):
        loop.kick()
    await until_async(lambda: _is(loop.passes == 2), 5)
    for _ in range(20):
        await asyncio.sleep(0)
    assert loop.passes == 2
    task.cancel()


async def test_the_next_pass_comes_when_a_decision_is_due() -> None:
    world = ScriptedWorld()
    loop = a_loop(world, lambda snapshot, now: Plan(next_pass_s=0.0), period_s=3600)
    task = asyncio.create_task(loop.run())
    await until_async(lambda: _is(loop.passes >= 3), 10)
    task.cancel()


async def test_the_world_is_looked_at_again_before_anything_is_done() -> None:
    world = ScriptedWorld()
    world.deployments = [a_deployment("a")]
    world.instances = [an_instance("a", resident_mib=100, last_request_at=NOW - 100)]

    def a_request_arrives() -> None:
        world.demand = [a_demand("a", queued=1)]

    world.between = a_request_arrives
    loop = a_loop(world)
    await loop.one_pass()
    assert [a.reason for a in loop.plan.actions if a.kind is ActionKind.SLEEP] == [Reason.IDLE]
    assert not [spec for spec in world.wanted if spec.desired is DesiredState.ASLEEP1]


async def test_memory_goes_from_pass_to_pass_without_what_was_not_done() -> None:
    world = ScriptedWorld()
    world.deployments = [a_deployment("a"), a_deployment("b")]
    world.instances = [an_instance(name, resident_mib=100) for name in "ab"]
    world.failing = {"a-1"}
    seen: list[PlannerMemory] = []
    switched = PlannerMemory(last_switch_at={"default/a": NOW, "default/b": NOW})

    def remembering(snapshot: Snapshot, now: float) -> Plan:
        seen.append(snapshot.memory)
        acts = (an_action(ActionKind.SLEEP, "a"), an_action(ActionKind.SLEEP, "b")) if len(seen) == 1 else ()
        return Plan(actions=acts, memory=switched if len(seen) == 1 else snapshot.memory)

    loop = a_loop(world, remembering)
    await loop.one_pass()
    await loop.one_pass()
    assert seen[0] == PlannerMemory()
    assert seen[1].last_switch_at == {"default/b": NOW}, "a was not switched, so it must not count as switched"


async def test_a_verdict_is_told_when_its_reason_changes() -> None:
    world = ScriptedWorld()
    reasons = [Reason.NO_DEMAND, Reason.NO_DEMAND, Reason.WAITING_FOR_ROOM]

    def telling(snapshot: Snapshot, now: float) -> Plan:
        reason = reasons[min(loop.passes, 2)]
        return Plan(verdicts=(Verdict(deployment="default/a", reason=reason, message=f"pass {loop.passes}"),))

    loop = a_loop(world, telling)
    for _ in reasons:
        await loop.one_pass()
    assert [(d.kind, d.reason, d.message) for d in world.decisions] == [
        ("Verdict", Reason.NO_DEMAND, "pass 0"),
        ("Verdict", Reason.WAITING_FOR_ROOM, "pass 2"),
    ]


async def test_only_an_instance_that_is_gone_as_wanted_is_forgotten() -> None:
    world = ScriptedWorld()
    world.deployments = [a_deployment(name) for name in "abc"]
    world.instances = [
        an_instance("a", InstanceState.EVICTED),
        an_instance("b", InstanceState.FAILED),
        an_instance("c", InstanceState.EVICTED, settled_generation=2),
    ]
    await a_loop(world, decider()).one_pass()
    assert world.forgotten == ["a-1"]


async def test_a_new_loop_starts_nothing_twice() -> None:
    """The loop's memory is lost with its process; what runs is with the agent."""
    world = ScriptedWorld()
    world.deployments = [a_deployment("a")]
    world.demand = [a_demand("a", waits=1)]
    world.instances = [an_instance("a", InstanceState.STARTING, resident_mib=100)]
    await a_loop(world).one_pass()
    assert not [d for d in world.decisions if d.kind == "Start"]
    world.instances = []
    await a_loop(world).one_pass()
    assert [d.kind for d in world.decisions if d.kind == "Start"] == ["Start"], "and does start what is not there"


async def _is(value: bool) -> bool:
    return value


async def test_while_something_is_on_its_way_the_next_look_comes_quickly() -> None:
    world = ScriptedWorld()
    world.deployments = [a_deployment("a")]
    world.instances = [an_instance("a", InstanceState.STARTING, settled_generation=2)]
    loop = a_loop(world, decider(), period_s=3600, in_transit_s=0.01)
    task = asyncio.create_task(loop.run())
    await until_async(lambda: _is(loop.passes >= 3), 10)
    world.instances = [an_instance("a")]
    await until_async(lambda: _is(loop.snapshot.instances[0].settled), 10)
    seen = loop.passes
    for _ in range(20):
        await asyncio.sleep(0)
    assert loop.passes - seen <= 1
    task.cancel()
