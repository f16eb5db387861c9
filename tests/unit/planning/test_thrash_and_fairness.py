from __future__ import annotations

import itertools

import pytest

from estiba_scheduler.domain import (
    ActionKind,
    DesiredState,
    InstanceState,
    PlannerMemory,
    Reason,
    Reservation,
)
from estiba_scheduler.planning import plan
from tests.builders import (
    MIB,
    NOW,
    a_demand,
    a_deployment,
    a_device,
    a_node,
    a_profile,
    a_snapshot,
    an_instance,
)
from tests.obedient_agent import ObedientCluster

from .looking import actions, the, told, verdict

ALONE = {"offload": "Never"}  # a slot: two of these never fit together
SWITCHES = (ActionKind.START, ActionKind.WAKE)


def a_slot(*names: str, **changes) -> ObedientCluster:
    return ObedientCluster([a_node()], [a_deployment(n, policies=ALONE, **changes) for n in names])


def test_t1_requests_of_three_models_on_one_slot_are_collated() -> None:
    cluster = a_slot("a", "b", "c")
    requests = [cluster.request(n, 0.7 * i) for i, n in enumerate("abaabcabc")]
    cluster.run(90)
    order = [a.deployment[-1] for _, a in cluster.kinds(*SWITCHES)]
    assert order == ["a", "b", "c"], cluster.story
    assert all(r.done_at is not None for r in requests), "no running request is lost"


def test_t1_a_minimum_residency_holds_under_alternating_demand() -> None:
    cluster = a_slot("a", "b")
    requests = [cluster.request("ab"[i % 2], i * 1.0, tokens=4) for i in range(180)]
    cluster.run(180)
    switches = [at for at, _ in cluster.kinds(*SWITCHES)]
    assert 4 <= len(switches) <= 180 / 6 + 2, cluster.story
    waits = [(r.started_at or cluster.now) - r.at for r in requests if r.at < NOW + 150]
    assert max(waits) < 30, cluster.story
    # Putting away and waking take 0.6 s; a residency is at least ten times that.
    assert min(b - a for a, b in itertools.pairwise(switches)) >= 6.0, cluster.story


def test_t1_switching_takes_about_a_tenth_of_the_time_at_most() -> None:
    cluster = a_slot("a", "b")
    for i in range(400):
        cluster.request("ab"[i % 2], i * 0.5, tokens=4)
    cluster.run(200)
    wakes = len(cluster.kinds(ActionKind.WAKE))
    assert wakes * 0.6 / 200 <= 0.11, cluster.story


def test_t1_nothing_waits_past_its_bound_behind_a_busy_model_of_higher_priority() -> None:
    cluster = ObedientCluster(
        [a_node()], [a_deployment("high", priority=100, policies=ALONE), a_deployment("low", policies=ALONE)]
    )
    for i in range(240):
        cluster.request("high", i * 0.5, tokens=2)
    low = cluster.request("low", 5)
    cluster.run(100)
    assert low.started_at is not None, cluster.story
    assert 20 < low.started_at - low.at < 45, cluster.story


def test_a_busy_model_of_higher_priority_is_not_put_away_before_that() -> None:
    decided = plan(
        a_snapshot(
            [a_deployment("a", priority=10, policies=ALONE), a_deployment("b", policies=ALONE)],
            [an_instance("a")],
            [a_demand("a", in_flight=1), a_demand("b", waits=5)],
        ),
        NOW,
    )
    assert not decided.actions, told(decided)
    assert verdict(decided, "b").reason is Reason.LOWER_PRIORITY
    assert decided.next_pass_s is not None
    assert decided.next_pass_s <= 25.01


def test_higher_priority_goes_first_and_waits_for_a_tenth_of_the_minimum_residency_only() -> None:
    ready = an_instance("a", state_since=NOW - 2)  # its minimum residency is 6 s
    snapshot = a_snapshot(
        [a_deployment("a", policies=ALONE), a_deployment("b", policies=ALONE, priority=50)],
        [ready],
        [a_demand("a", in_flight=1), a_demand("b", waits=1)],
    )
    assert the(plan(snapshot, NOW), ActionKind.SLEEP, "a").beneficiary == "default/b"
    even = snapshot.model_copy(
        update={"deployments": (a_deployment("a", policies=ALONE), a_deployment("b", policies=ALONE))}
    )
    decided = plan(even, NOW)
    assert not decided.actions
    assert verdict(decided, "b").reason is Reason.QUANTUM
    assert decided.next_pass_s == pytest.approx(4.0)


def test_t2_freed_room_is_reserved_and_not_stolen() -> None:
    """Room for b is being freed; c comes later, fits the free part, and must not take what b needs."""
    leaving = an_instance(
        "a",
        InstanceState.DRAINING,
        spec_desired=DesiredState.ASLEEP1,
        spec_generation=4,
        in_flight=1,
        state_since=NOW - 1,
    )
    memory = PlannerMemory(
        reservations=(Reservation(deployment="default/b", device="cpu-0", bytes=650 * MIB, expires_at=NOW + 60),)
    )
    deployments = [a_deployment("a"), a_deployment("b", policies=ALONE), a_deployment("c")]
    decided = plan(
        a_snapshot(deployments, [leaving], [a_demand("b", waits=9), a_demand("c", waits=1)], memory=memory), NOW
    )
    assert not actions(decided, name="c"), told(decided)
    assert [r.deployment for r in decided.memory.reservations] == ["default/b"]


def test_t2_a_reservation_ends_and_its_owner_backs_off() -> None:
    stuck = an_instance("a", InstanceState.DRAINING, spec_desired=DesiredState.ASLEEP1, spec_generation=4)
    memory = PlannerMemory(
        reservations=(Reservation(deployment="default/b", device="cpu-0", bytes=519 * MIB, expires_at=NOW - 1),)
    )
    decided = plan(
        a_snapshot(
            [a_deployment("a"), a_deployment("b", policies=ALONE)], [stuck], [a_demand("b", waits=9)], memory=memory
        ),
        NOW,
    )
    assert not decided.memory.reservations
    assert decided.memory.back_offs[0].deployment == "default/b"
    assert verdict(decided, "b").reason is Reason.BACK_OFF


def test_t2_a_reservation_of_who_no_longer_waits_is_dropped() -> None:
    memory = PlannerMemory(
        reservations=(Reservation(deployment="default/b", device="cpu-0", bytes=650 * MIB, expires_at=NOW + 60),)
    )
    decided = plan(
        a_snapshot([a_deployment("a"), a_deployment("b")], demand=[a_demand("a", waits=1)], memory=memory), NOW
    )
    the(decided, ActionKind.START, "a")


def test_t3_what_can_not_be_placed_does_not_hold_up_the_rest() -> None:
    huge = a_deployment("huge", priority=1000, policies=ALONE)
    profiles = {
        "huge": a_profile("huge", footprint=a_profile().footprint.model_copy(update={"weight_bytes": 9000 * MIB}))
    }
    decided = plan(
        a_snapshot([huge, a_deployment("a")], [], [a_demand("huge", waits=99), a_demand("a", waits=1)], profiles), NOW
    )
    the(decided, ActionKind.START, "a")
    assert verdict(decided, "huge").reason is Reason.INSUFFICIENT_MEMORY


def test_t3_a_model_that_fails_to_start_backs_off_longer_each_time() -> None:
    memory, delays = PlannerMemory(), []
    at = NOW
    for _ in range(4):
        failed = an_instance("a", InstanceState.FAILED, reason="EngineExited", state_since=at, first_ready_at=None)
        decided = plan(
            a_snapshot(
                [a_deployment("a")], [failed], [a_demand("a", waits=1)], nodes=[a_node(reported_at=at)], memory=memory
            ),
            at,
        )
        memory = decided.memory
        delays.append(memory.back_offs[0].retry_at - at)
        again = plan(
            a_snapshot(
                [a_deployment("a")], [failed], [a_demand("a", waits=1)], nodes=[a_node(reported_at=at)], memory=memory
            ),
            at,
        )
        assert again.memory.back_offs == memory.back_offs, "one failure is counted once"
        at = memory.back_offs[0].retry_at + 10
    assert delays == [5, 10, 20, 40]


def test_t4_a_request_revives_a_model_that_still_drains() -> None:
    leaving = an_instance(
        "a",
        InstanceState.DRAINING,
        spec_desired=DesiredState.ASLEEP1,
        spec_generation=4,
        in_flight=1,
        state_since=NOW - 1,
    )
    decided = plan(a_snapshot([a_deployment("a")], [leaving], [a_demand("a", waits=0.1, in_flight=1)]), NOW)
    wake = the(decided, ActionKind.WAKE, "a")
    assert wake.expected_generation == 4


def test_t4_but_not_into_room_that_is_kept_for_another() -> None:
    leaving = an_instance(
        "a",
        InstanceState.DRAINING,
        spec_desired=DesiredState.ASLEEP1,
        spec_generation=4,
        in_flight=1,
        state_since=NOW - 1,
    )
    memory = PlannerMemory(
        reservations=(Reservation(deployment="default/b", device="cpu-0", bytes=519 * MIB, expires_at=NOW + 60),)
    )
    decided = plan(
        a_snapshot(
            [a_deployment("a", policies=ALONE), a_deployment("b", policies=ALONE)],
            [leaving],
            [a_demand("a", waits=0.1, in_flight=1), a_demand("b", waits=9)],
            memory=memory,
        ),
        NOW,
    )
    assert not decided.actions, told(decided)
    assert verdict(decided, "a").reason is not Reason.NO_DEVICE


def test_t4_requests_that_cross_with_evictions_are_all_served() -> None:
    cluster = a_slot("a", "b")
    requests = []
    for i in range(30):
        requests.append(cluster.request("a", i * 4.1))
        requests.append(cluster.request("b", i * 4.1 + 2.0))
    cluster.run(200)
    assert all(r.done_at is not None for r in requests), cluster.story


def pinned(name: str, **changes):
    return a_deployment(name, policies=ALONE | {"preemption": "Never"}, **changes)


def test_t6_a_pinned_model_is_never_a_victim_and_the_message_names_it() -> None:
    decided = plan(
        a_snapshot(
            [pinned("assistant"), a_deployment("b", policies=ALONE, priority=1000)],
            [an_instance("assistant")],
            [a_demand("b", waits=500)],
            nodes=[a_node()],
        ),
        NOW,
    )
    assert not actions(decided, name="assistant") or decided.actions[0].reason is Reason.IDLE
    busy = plan(
        a_snapshot(
            [pinned("assistant"), a_deployment("b", policies=ALONE, priority=1000)],
            [an_instance("assistant")],
            [a_demand("assistant", in_flight=1), a_demand("b", waits=500)],
        ),
        NOW,
    )
    assert not busy.actions, told(busy)
    said = verdict(busy, "b")
    assert said.reason is Reason.ALL_PINNED
    assert "needs 511 MiB on cpu-0" in said.message
    assert "181 MiB free" in said.message
    assert "assistant is pinned" in said.message


def test_t6_lowest_rung_none_pins_as_well() -> None:
    kept = a_deployment("a", policies=ALONE | {"lowest_rung": "none"})
    decided = plan(
        a_snapshot([kept, a_deployment("b", policies=ALONE)], [an_instance("a")], [a_demand("b", waits=500)]), NOW
    )
    assert not decided.actions, told(decided)
    assert verdict(decided, "b").reason is Reason.ALL_PINNED


def test_the_lowest_rung_is_a_hard_limit() -> None:
    shallow = a_deployment("a", policies=ALONE | {"lowest_rung": "sleep1"})
    node = a_node(host_mib=100)
    decided = plan(a_snapshot([shallow], [an_instance("a")], nodes=[node]), NOW)
    assert not decided.actions, told(decided)
    assert verdict(decided, "a").reason is Reason.HOST_MEMORY


def test_the_victim_is_the_one_that_is_cheapest_to_get_back() -> None:
    cheap, dear = a_profile("cheap"), a_profile("dear", ladder={"cold": (60.0, 1.0)})
    half = a_profile().footprint.model_copy(update={"weight_bytes": 320 * MIB, "layer_bytes": (22 * MIB,) * 10})
    profiles = {
        "cheap": cheap.model_copy(update={"footprint": half}),
        "dear": dear.model_copy(update={"footprint": half}),
    }
    instances = [
        an_instance("cheap", profile=profiles["cheap"], last_request_at=NOW - 1),
        an_instance("dear", profile=profiles["dear"], last_request_at=NOW - 1),
    ]
    decided = plan(
        a_snapshot(
            [
                a_deployment("cheap", policies=ALONE),
                a_deployment("dear", policies=ALONE),
                a_deployment("new", policies=ALONE),
            ],
            instances,
            [
                a_demand("new", waits=1),
                a_demand("cheap", last_request_at=NOW - 1),
                a_demand("dear", last_request_at=NOW - 1),
            ],
            profiles | {"new": profiles["cheap"]},
        ),
        NOW,
    )
    assert actions(decided, ActionKind.SLEEP, "cheap"), told(decided)
    assert not actions(decided, name="dear")


def test_two_kept_models_that_do_not_fit_together_do_not_push_each_other_out() -> None:
    cluster = ObedientCluster([a_node()], [a_deployment(n, min_replicas=1, policies=ALONE) for n in "ab"])
    cluster.run(120)
    assert len(cluster.actions) == 1, cluster.story
    assert cluster.last_plan.verdicts[1].reason is Reason.LOWER_PRIORITY


def test_a_kept_model_makes_way_for_demand_and_comes_back() -> None:
    cluster = ObedientCluster(
        [a_node()], [a_deployment("kept", min_replicas=1, policies=ALONE), a_deployment("b", policies=ALONE)]
    )
    cluster.run(30)
    request = cluster.request("b")
    cluster.run(60)
    assert request.done_at is not None, cluster.story
    assert cluster.state("kept") is InstanceState.READY, cluster.story


def test_devices_of_different_size_take_what_fits_them() -> None:
    node = a_node([a_device("cpu-0", memory_mib=200), a_device("cpu-1", memory_mib=900)])
    decided = plan(a_snapshot([a_deployment("a", policies=ALONE)], demand=[a_demand("a", waits=1)], nodes=[node]), NOW)
    assert the(decided, ActionKind.START, "a").device == "cpu-1"


def test_a_preemption_says_what_it_costs_and_what_the_next_best_would_have_cost() -> None:
    cheap = a_profile("cheap", ladder={"sleep1": (0.2, 0.1), "cold": (4.0, 0.3)})
    dear = a_profile("dear", ladder={"sleep1": (5.0, 2.0), "cold": (9.0, 0.3)})
    snapshot = a_snapshot(
        [a_deployment("wants", priority=100, policies=ALONE), a_deployment("cheap"), a_deployment("dear")],
        [
            an_instance("cheap", profile=cheap, last_request_at=NOW - 1),
            an_instance("dear", profile=dear, last_request_at=NOW - 1),
        ],
        [a_demand("wants", waits=1.0)],
        {"cheap": cheap, "dear": dear},
        [a_node([a_device(memory_mib=1120)])],
    )
    decided = plan(snapshot, NOW)
    assert [a.kind for a in decided.actions] == [ActionKind.SLEEP], told(decided)
    sleep = decided.actions[0]
    assert sleep.deployment == "default/cheap"
    assert 0 < sleep.numbers["cost"] < sleep.numbers["instead_cost"]
    assert "dear instead" in sleep.message
