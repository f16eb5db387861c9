from __future__ import annotations

import pytest

from estiba_scheduler.domain import (
    ActionKind,
    DesiredState,
    DeviceHealth,
    InstanceState,
    PlannerMemory,
    Reason,
)
from estiba_scheduler.planning import plan
from estiba_scheduler.prediction import device_bytes
from tests.builders import (
    MIB,
    NOW,
    a_demand,
    a_deployment,
    a_device,
    a_footprint,
    a_node,
    a_profile,
    a_snapshot,
    an_instance,
)
from tests.obedient_agent import ObedientCluster

from .looking import actions, the, told, verdict


def test_a_request_starts_a_model_with_a_budget_of_all_it_may_hold() -> None:
    decided = plan(a_snapshot([a_deployment("a")], demand=[a_demand("a", waits=1)]), NOW)
    start = the(decided, ActionKind.START, "a")
    assert start.resident_bytes == 500 * MIB
    assert start.budget_bytes == device_bytes(a_footprint(), start.resident_bytes, start.kv_bytes)
    assert start.instance is None
    assert (start.node, start.device, start.reason) == ("n1", "cpu-0", Reason.DEMAND)
    assert "500" in start.message or "519 MiB" in start.message


def test_m2_budgets_never_exceed_what_is_usable() -> None:
    deployments = [a_deployment(n) for n in "abc"]
    decided = plan(a_snapshot(deployments, demand=[a_demand(n, waits=1) for n in "abc"]), NOW)
    starts = actions(decided, ActionKind.START)
    assert len(starts) >= 1
    assert sum(s.budget_bytes for s in starts) <= 700 * MIB, told(decided)


def test_m2_what_does_not_fit_is_told_by_how_much() -> None:
    never = a_deployment("a", policies={"offload": "Never"})
    small = a_snapshot([never], demand=[a_demand("a", waits=1)], nodes=[a_node([a_device(memory_mib=400)])])
    said = verdict(plan(small, NOW), "a")
    assert said.reason is Reason.INSUFFICIENT_MEMORY
    assert said.numbers["needed_bytes"] == 511 * MIB
    assert said.numbers["usable_bytes"] == 400 * MIB
    assert "511 MiB" in said.message
    assert "400 MiB" in said.message


def test_m2_the_reserve_is_kept_free() -> None:
    node = a_node([a_device(reserve_bytes=300 * MIB)])
    start = the(
        plan(a_snapshot([a_deployment("a")], demand=[a_demand("a", waits=1)], nodes=[node]), NOW), ActionKind.START, "a"
    )
    assert start.budget_bytes <= 400 * MIB


def out_of_memory(budget_factor: float = 1.0):
    failed = an_instance(
        "a", InstanceState.FAILED, reason=str(Reason.OUT_OF_MEMORY), spec_reason="Demand", device_bytes=0
    )
    spec = failed.spec.model_copy(update={"budget_bytes": int(failed.spec.budget_bytes * budget_factor) + 1})
    return failed.model_copy(update={"spec": spec})


def test_m4_an_out_of_memory_raises_the_estimate_and_is_tried_once_more() -> None:
    deployments, demand = [a_deployment("a")], [a_demand("a", waits=1)]
    first = plan(a_snapshot(deployments, [out_of_memory()], demand), NOW)
    evict = the(first, ActionKind.EVICT, "a")
    assert evict.reason is Reason.OUT_OF_MEMORY
    assert list(first.memory.footprint_factor.values()) == [1.25]
    again = plan(a_snapshot(deployments, [], demand, memory=first.memory), NOW + 1)
    start = the(again, ActionKind.START, "a")
    assert start.budget_bytes == pytest.approx(
        1.25 * device_bytes(a_footprint(), start.resident_bytes, start.kv_bytes), abs=2
    )


def test_m4_a_second_out_of_memory_stays_failed_with_the_numbers() -> None:
    memory = PlannerMemory(footprint_factor={str(a_profile("a").key): 1.25})
    decided = plan(a_snapshot([a_deployment("a")], [out_of_memory(1.25)], [a_demand("a", waits=1)], memory=memory), NOW)
    assert not decided.actions, told(decided)
    said = verdict(decided, "a")
    assert said.reason is Reason.OUT_OF_MEMORY
    assert said.numbers["factor"] == 1.25
    assert "MiB" in said.message


def test_m5_the_device_is_free_after_an_instance_is_gone_whatever_was_remembered() -> None:
    """Nothing but observations counts: an evicted instance, or one that is no longer reported, holds nothing."""
    gone = an_instance("b", InstanceState.EVICTED, device_bytes=0)
    deployments = [a_deployment("a", policies={"offload": "Never"})]
    decided = plan(a_snapshot(deployments, [gone], [a_demand("a", waits=1)]), NOW)
    the(decided, ActionKind.START, "a")


def test_m5_an_instance_still_holding_its_memory_is_waited_for_and_nobody_else_yields() -> None:
    leaving = an_instance("b", InstanceState.DRAINING, spec_desired=DesiredState.EVICTED, spec_generation=4)
    other = an_instance("c", resident_mib=100)
    deployments = [a_deployment("a", policies={"offload": "Never"}), a_deployment("c")]
    node = a_node([a_device(memory_mib=750)])
    decided = plan(
        a_snapshot(deployments, [leaving, other], [a_demand("a", waits=1), a_demand("c", in_flight=1)], nodes=[node]),
        NOW,
    )
    assert not decided.actions, told(decided)
    assert verdict(decided, "a").reason is Reason.WAITING_FOR_ROOM
    assert decided.memory.reservations[0].deployment == "default/a"


def test_m6_foreign_memory_is_respected_and_named() -> None:
    node = a_node([a_device(foreign_bytes=300 * MIB)])
    never = a_deployment("a", policies={"offload": "Never"})
    said = verdict(plan(a_snapshot([never], demand=[a_demand("a", waits=1)], nodes=[node]), NOW), "a")
    assert said.reason is Reason.INSUFFICIENT_MEMORY
    assert "300 MiB are held by other processes" in said.message


def test_m6_the_devices_own_free_figure_wins_over_the_ledger() -> None:
    """The driver can't say who, but it says that only 250 MiB are free on an empty device."""
    node = a_node([a_device(free_bytes=250 * MIB)])
    decided = plan(a_snapshot([a_deployment("a")], demand=[a_demand("a", waits=1)], nodes=[node]), NOW)
    assert the(decided, ActionKind.START, "a").budget_bytes <= 250 * MIB


def test_m6_our_own_instances_are_not_counted_as_foreign() -> None:
    running = an_instance("a")
    free = 1000 * MIB - running.status.device_bytes
    node = a_node([a_device(memory_mib=1000, free_bytes=free)])
    decided = plan(
        a_snapshot(
            [a_deployment("a"), a_deployment("b")],
            [running],
            [a_demand("a", in_flight=1), a_demand("b", waits=1)],
            nodes=[node],
        ),
        NOW,
    )
    assert the(decided, ActionKind.START, "b").budget_bytes > 400 * MIB


def test_m6_when_another_process_takes_memory_our_models_shrink() -> None:
    node = a_node([a_device(foreign_bytes=300 * MIB, free_bytes=0)])
    decided = plan(a_snapshot([a_deployment("a")], [an_instance("a")], [a_demand("a", in_flight=1)], nodes=[node]), NOW)
    resize = the(decided, ActionKind.RESIZE, "a")
    assert resize.budget_bytes <= 400 * MIB
    assert resize.reason is Reason.SHRUNK


def test_m6_when_shrinking_is_not_enough_a_model_is_put_away() -> None:
    node = a_node([a_device(foreign_bytes=300 * MIB)])
    never = a_deployment("a", policies={"offload": "Never"})
    decided = plan(a_snapshot([never], [an_instance("a")], [a_demand("a", in_flight=1)], nodes=[node]), NOW)
    assert the(decided, ActionKind.SLEEP, "a").level == 1


def test_m7_a_device_with_leaked_memory_takes_no_placement() -> None:
    node = a_node([a_device(health=DeviceHealth.LEAKED)])
    decided = plan(a_snapshot([a_deployment("a")], demand=[a_demand("a", waits=1)], nodes=[node]), NOW)
    assert not decided.actions
    assert verdict(decided, "a").reason is Reason.NO_DEVICE
    assert "DeviceMemoryLeaked" in verdict(decided, "a").message


def test_n3_a_silent_node_takes_no_placement_and_no_command() -> None:
    node = a_node(reported_at=NOW - 20)
    decided = plan(a_snapshot([a_deployment("a")], [an_instance("b")], [a_demand("a", waits=1)], nodes=[node]), NOW)
    assert not decided.actions, told(decided)
    assert "last heard of 20.0 s ago" in verdict(decided, "a").message


def test_two_devices_are_used_before_anyone_yields() -> None:
    node = a_node([a_device("cpu-0"), a_device("cpu-1")])
    decided = plan(
        a_snapshot(
            [a_deployment("a"), a_deployment("b")],
            [an_instance("a")],
            [a_demand("a", in_flight=1), a_demand("b", waits=1)],
            nodes=[node],
        ),
        NOW,
    )
    assert the(decided, ActionKind.START, "b").device == "cpu-1"
    assert len(decided.actions) == 1, told(decided)


def test_replicas_go_to_different_devices_and_no_further() -> None:
    node = a_node([a_device("cpu-0"), a_device("cpu-1")])
    cluster = ObedientCluster([node], [a_deployment("a", min_replicas=3, max_replicas=3)])
    cluster.run(20)
    assert sorted(e.spec.device for e in cluster.engines.values()) == ["cpu-0", "cpu-1"], cluster.story


@pytest.mark.parametrize("field", ["product", "uuid"])
def test_a_deployment_may_name_its_devices(field: str) -> None:
    node = a_node([a_device("cpu-0"), a_device("cpu-1")])
    named = ("cpu-1",) if field == "uuid" else ("another-product",)
    decided = plan(a_snapshot([a_deployment("a", devices=named)], demand=[a_demand("a", waits=1)], nodes=[node]), NOW)
    if field == "uuid":
        assert the(decided, ActionKind.START, "a").device == "cpu-1"
    else:
        assert verdict(decided, "a").reason is Reason.NO_DEVICE


def test_s7_host_memory_full_of_sleepers_makes_another_rung_be_chosen() -> None:
    asleep = an_instance("b", InstanceState.ASLEEP1)
    deployments = [a_deployment("a"), a_deployment("b")]
    tight = a_snapshot(deployments, [an_instance("a"), asleep], nodes=[a_node(host_mib=800)])
    decided = plan(tight, NOW)
    sleep = the(decided, ActionKind.SLEEP, "a")
    assert sleep.level == 2
    assert "host memory" in sleep.message
    assert verdict(decided, "a").reason is Reason.HOST_MEMORY
    roomy = a_snapshot(deployments, [an_instance("a"), asleep], nodes=[a_node(host_mib=1000)])
    assert the(plan(roomy, NOW), ActionKind.SLEEP, "a").level == 1


def test_s7_two_that_go_to_sleep_at_once_share_one_host_budget() -> None:
    node = a_node([a_device("cpu-0"), a_device("cpu-1")], host_mib=600)
    instances = [an_instance("a"), an_instance("b", device="cpu-1")]
    decided = plan(a_snapshot([a_deployment("a"), a_deployment("b")], instances, nodes=[node]), NOW)
    assert sorted(a.level for a in actions(decided, ActionKind.SLEEP)) == [1, 2], told(decided)


def test_s7_offloading_is_limited_by_host_memory_too() -> None:
    """The device has room for a fifth of the weights only, and the host has none for the rest."""
    node = a_node([a_device(memory_mib=300)], host_mib=100)
    said = verdict(plan(a_snapshot([a_deployment("a")], demand=[a_demand("a", waits=1)], nodes=[node]), NOW), "a")
    assert said.reason is Reason.INSUFFICIENT_HOST_MEMORY


def test_a_sleeper_makes_way_where_host_memory_is_what_is_short() -> None:
    node = a_node([a_device(memory_mib=300)], host_mib=600)
    asleep = an_instance("b", InstanceState.ASLEEP1)
    decided = plan(
        a_snapshot([a_deployment("a"), a_deployment("b")], [asleep], [a_demand("a", waits=1)], nodes=[node]), NOW
    )
    assert the(decided, ActionKind.EVICT, "b").beneficiary == "default/a"


@pytest.mark.parametrize(("host_mib", "moves"), [(8192, True), (710, True), (690, False), (480, False)])
def test_s7_bytes_move_between_models_only_where_host_memory_holds_both_halves(host_mib: int, moves: bool) -> None:
    """What leaves the device is in host memory at once; what the other one gains is still there, too: 460 and 240."""
    profiles = {"a": a_profile("a", compute_s=0.02), "b": a_profile("b", compute_s=0.001)}
    running = [
        an_instance("a", profile=profiles["a"], resident_mib=340, in_flight=1),
        an_instance("b", profile=profiles["b"], resident_mib=200, in_flight=3),
    ]
    demand = [
        a_demand("a", in_flight=1, arrival_rate_per_s=0.01),
        a_demand("b", in_flight=3, arrival_rate_per_s=2.0),
    ]
    nodes = [a_node([a_device(memory_mib=740)], host_mib=host_mib)]
    decided = plan(
        a_snapshot([a_deployment("a"), a_deployment("b")], running, demand, profiles=profiles, nodes=nodes), NOW
    )
    assert bool(actions(decided, ActionKind.RESIZE, "a")) is moves, told(decided)
