from __future__ import annotations

import pytest

from estiba_scheduler.domain import (
    ActionKind,
    BackOff,
    InstanceState,
    PlannerMemory,
    Reason,
)
from estiba_scheduler.planning import plan
from tests.builders import MIB, NOW, a_demand, a_deployment, a_model, a_node, a_profile, a_snapshot, an_instance
from tests.obedient_agent import ObedientCluster

from .looking import actions, the, told, verdict


def test_an_idle_model_sleeps_and_the_sentence_has_the_numbers() -> None:
    running = an_instance("a", last_request_at=NOW - 12)
    decided = plan(a_snapshot([a_deployment("a")], [running]), NOW)
    sleep = the(decided, ActionKind.SLEEP, "a")
    assert (sleep.level, sleep.reason, sleep.expected_generation) == (1, Reason.IDLE, 3)
    assert sleep.message == "asleep level 1: idle 12.0 s (idle time 3.0 s), wakes in 0.4 s; frees 519 MiB"


def test_a_model_in_use_stays_and_the_next_pass_is_due_when_its_idle_time_ends() -> None:
    running = an_instance("a", last_request_at=NOW - 1)
    decided = plan(a_snapshot([a_deployment("a")], [running]), NOW)
    assert not decided.actions
    assert decided.next_pass_s == pytest.approx(2.0)


def test_a_long_request_that_just_ended_starts_the_idle_clock_anew() -> None:
    """It arrived a minute ago; what counts is when it was last seen running."""
    running = an_instance("a", last_request_at=NOW - 60)
    memory = PlannerMemory(last_busy_at={"default/a": NOW - 1})
    assert not plan(a_snapshot([a_deployment("a")], [running], memory=memory), NOW).actions


@pytest.mark.parametrize(
    "policies", [{"idle": "Never"}, {"idle_s": 600}, {"lowest_rung": "none"}], ids=["never", "600 s", "no rung"]
)
def test_policies_keep_an_idle_model_awake(policies: dict[str, object]) -> None:
    running = an_instance("a", last_request_at=NOW - 300)
    assert not plan(a_snapshot([a_deployment("a", policies=policies)], [running]), NOW).actions


def test_an_idle_time_of_the_users_own_wins() -> None:
    running = an_instance("a", last_request_at=NOW - 1, first_ready_at=NOW - 50, state_since=NOW - 50)
    decided = plan(a_snapshot([a_deployment("a", policies={"idle_s": 0.5})], [running]), NOW)
    the(decided, ActionKind.SLEEP, "a")


def test_a_kept_replica_never_idles() -> None:
    running = an_instance("a", last_request_at=NOW - 900)
    assert not plan(a_snapshot([a_deployment("a", min_replicas=1)], [running]), NOW).actions


def test_z2_the_idle_clock_starts_at_first_ready() -> None:
    loading = an_instance("a", InstanceState.STARTING, settled_generation=0, first_ready_at=None, state_since=NOW - 100)
    deployment = a_deployment("a", created_at=NOW - 10_000)
    demand = [a_demand("a", last_request_at=NOW - 100)]
    assert not plan(a_snapshot([deployment], [loading], demand), NOW).actions
    ready = an_instance("a", first_ready_at=NOW - 1, state_since=NOW - 1)
    assert not plan(a_snapshot([deployment], [ready], demand), NOW).actions


def test_z2_a_model_that_nobody_called_is_not_started() -> None:
    decided = plan(a_snapshot([a_deployment("a")]), NOW)
    assert not decided.actions
    assert verdict(decided, "a").reason is Reason.NO_DEMAND
    assert verdict(decided, "a").wake_s == pytest.approx(4.0)


def test_z3_asleep_is_a_healthy_state_with_its_wake_time() -> None:
    decided = plan(a_snapshot([a_deployment("a")], [an_instance("a", InstanceState.ASLEEP1)]), NOW)
    assert not decided.actions
    said = verdict(decided, "a")
    assert (said.reason, said.wake_s) == (Reason.ASLEEP, 0.4)
    assert said.message == "a is asleep level 1, wakes in 0.4 s"


def test_a_request_wakes_a_sleeper_on_its_generation() -> None:
    asleep = an_instance("a", InstanceState.ASLEEP1)
    wake = the(plan(a_snapshot([a_deployment("a")], [asleep], [a_demand("a", waits=0.1)]), NOW), ActionKind.WAKE, "a")
    assert (wake.instance, wake.expected_generation) == ("a-1", 3)
    assert wake.resident_bytes == 500 * MIB


def test_z5_a_start_gets_its_deadline_from_the_profile() -> None:
    slow = a_profile("a", ladder={"cold": (120.0, 1.0)})
    decided = plan(a_snapshot([a_deployment("a")], demand=[a_demand("a", waits=1)], profiles={"a": slow}), NOW)
    assert the(decided, ActionKind.START, "a").start_deadline_s == 600


def test_what_is_in_progress_is_left_alone() -> None:
    waking = an_instance("a", InstanceState.STARTING, spec_generation=4)
    decided = plan(a_snapshot([a_deployment("a")], [waking], [a_demand("a", waits=3)]), NOW)
    assert not decided.actions, told(decided)
    assert verdict(decided, "a").reason is Reason.STARTED


def test_s1_a_wake_that_failed_escalates_to_a_restart() -> None:
    failed = an_instance(
        "a",
        InstanceState.FAILED,
        reason=str(Reason.ESCALATED),
        message="wake: 40 MiB short",
        state_since=NOW - 1,
        device_bytes=90 * MIB,
    )
    deployments, demand = [a_deployment("a")], [a_demand("a", waits=1)]
    first = plan(a_snapshot(deployments, [failed], demand), NOW)
    evict = the(first, ActionKind.EVICT, "a")
    assert evict.reason is Reason.ESCALATED
    assert "40 MiB short" in evict.message
    last = plan(a_snapshot(deployments, [], demand, memory=first.memory), NOW + 2)
    the(last, ActionKind.START, "a")


def test_s1_a_restart_that_keeps_failing_is_not_tried_for_ever_without_a_pause() -> None:
    deployments, demand = [a_deployment("a")], [a_demand("a", waits=1)]
    once = an_instance("a", InstanceState.FAILED, reason="Escalated", state_since=NOW - 1)
    first = plan(a_snapshot(deployments, [once], demand), NOW)
    twice = an_instance("a", InstanceState.FAILED, reason="EngineExited", state_since=NOW + 8, first_ready_at=None)
    second = plan(
        a_snapshot(deployments, [twice], demand, nodes=[a_node(reported_at=NOW + 8)], memory=first.memory), NOW + 8
    )
    assert not second.actions, told(second)
    assert verdict(second, "a").reason is Reason.BACK_OFF
    assert second.next_pass_s == pytest.approx(10.0)


def test_s5_a_failed_start_keeps_its_last_words_until_the_next_try() -> None:
    failed = an_instance(
        "a",
        InstanceState.FAILED,
        reason="StartTimeout",
        message="no answer in 60 s",
        first_ready_at=None,
        state_since=NOW,
    )
    decided = plan(a_snapshot([a_deployment("a")], [failed], [a_demand("a", waits=1)]), NOW)
    assert not decided.actions
    assert "no answer in 60 s" in verdict(decided, "a").message


def test_a_model_that_serves_again_is_forgiven() -> None:
    cluster = ObedientCluster([a_node()], [a_deployment("a", min_replicas=1)])
    cluster.run(10)
    cluster.memory = cluster.memory.model_copy(
        update={"back_offs": (BackOff(deployment="default/a", failures=3, retry_at=NOW),)}
    )
    cluster.run(70)
    assert not cluster.memory.back_offs


def test_s6_a_transition_that_never_ends_is_escalated() -> None:
    stuck = an_instance(
        "a",
        InstanceState.STARTING,
        settled_generation=0,
        state_since=NOW - 400,
        spec_start_deadline_s=300,
        first_ready_at=None,
    )
    decided = plan(a_snapshot([a_deployment("a")], [stuck], [a_demand("a", waits=1)]), NOW)
    assert the(decided, ActionKind.EVICT, "a").reason is Reason.ESCALATED


def test_an_instance_of_a_deleted_deployment_is_evicted() -> None:
    evict = the(plan(a_snapshot([], [an_instance("a", in_flight=1)]), NOW), ActionKind.EVICT, "a")
    assert evict.reason is Reason.DELETED


def test_a_changed_model_is_evicted_and_then_started_anew() -> None:
    changed = a_deployment("a", model=a_model("a2"), min_replicas=1)
    first = plan(a_snapshot([changed], [an_instance("a")]), NOW)
    the(first, ActionKind.EVICT, "a")
    assert not actions(first, ActionKind.START)
    the(plan(a_snapshot([changed], [], memory=first.memory), NOW + 1), ActionKind.START, "a")


def test_replicas_beyond_what_is_wanted_go() -> None:
    node = a_node([*a_node().devices, a_node().devices[0].model_copy(update={"uuid": "cpu-1"})])
    two = [an_instance("a", in_flight=1), an_instance("a", device="cpu-1", spec_id="a-2")]
    decided = plan(a_snapshot([a_deployment("a")], two, [a_demand("a", in_flight=1)], nodes=[node]), NOW)
    assert [a.instance for a in decided.actions] == ["a-2"], told(decided)


@pytest.mark.parametrize(
    ("deployment", "reason"),
    [
        (a_deployment("bad", problem="no such file"), Reason.INVALID),
        (a_deployment("bad", policies={"lowest_rung": "bottom"}), Reason.INVALID),
        (a_deployment("bad", min_replicas=2, max_replicas=1), Reason.INVALID),
    ],
)
def test_one_bad_deployment_never_stops_the_others(deployment, reason: Reason) -> None:
    decided = plan(
        a_snapshot([deployment, a_deployment("good")], demand=[a_demand("bad", waits=9), a_demand("good", waits=1)]),
        NOW,
    )
    assert verdict(decided, "bad").reason is reason
    the(decided, ActionKind.START, "good")


def test_a_model_without_a_profile_waits_for_one() -> None:
    snapshot = a_snapshot([a_deployment("a")], demand=[a_demand("a", waits=1)]).model_copy(update={"profiles": {}})
    assert verdict(plan(snapshot, NOW), "a").reason is Reason.UNPROFILED
    measuring = snapshot.model_copy(update={"profiling": frozenset({"default/a"})})
    assert verdict(plan(measuring, NOW), "a").reason is Reason.PROFILING
