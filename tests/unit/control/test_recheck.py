from __future__ import annotations

import pytest

from estiba_scheduler.control import Recheck
from estiba_scheduler.domain import ActionKind, DeviceHealth, InstanceState, Reason, Snapshot
from tests.builders import MIB, NOW, a_demand, a_deployment, a_device, a_node, a_snapshot, an_instance

from .scripted_world import an_action


def objection(snapshot: Snapshot, kind: ActionKind, **changes: object) -> str | None:
    return Recheck(snapshot, NOW).objection(an_action(kind, **changes))


def test_what_still_fits_is_left_standing() -> None:
    asleep = a_snapshot([a_deployment("a")], [an_instance("a", InstanceState.ASLEEP1)])
    for kind in (ActionKind.WAKE, ActionKind.SLEEP, ActionKind.EVICT):
        assert objection(asleep, kind) is None
    assert objection(a_snapshot([a_deployment("a")]), ActionKind.START) is None


@pytest.mark.parametrize("kind", [ActionKind.RESIZE, ActionKind.WAKE, ActionKind.SLEEP, ActionKind.EVICT])
def test_an_instance_that_went_on_is_not_told_what_was_decided_before(kind: ActionKind) -> None:
    moved = a_snapshot([a_deployment("a")], [an_instance("a", generation=4)])
    said = objection(moved, kind)
    assert said == "a-1 is at generation 4 and this was decided on 3"


@pytest.mark.parametrize("kind", [ActionKind.RESIZE, ActionKind.WAKE, ActionKind.SLEEP, ActionKind.EVICT])
def test_an_instance_that_is_gone_is_left_alone(kind: ActionKind) -> None:
    assert objection(a_snapshot([a_deployment("a")]), kind) == "a-1 is gone"


def test_a_deleted_deployment_gets_nothing_but_may_be_put_away() -> None:
    deleted = a_snapshot([], [an_instance("a", InstanceState.ASLEEP1)])
    assert objection(deleted, ActionKind.START) == "default/a is deleted"
    assert objection(deleted, ActionKind.WAKE) == "default/a is deleted"
    assert objection(deleted, ActionKind.EVICT) is None


def test_nothing_is_started_beside_what_runs_already() -> None:
    running = a_snapshot([a_deployment("a")], [an_instance("a", resident_mib=100)])
    assert objection(running, ActionKind.START) == "default/a runs already"


def test_two_starts_in_one_plan_are_one() -> None:
    recheck = Recheck(a_snapshot([a_deployment("a")]), NOW)
    start = an_action(ActionKind.START)
    assert recheck.objection(start) is None
    recheck.accept(start)
    assert recheck.objection(start) == "default/a runs already"


@pytest.mark.parametrize("demand", [{"queued": 1}, {"in_flight": 1}])
def test_what_is_not_idle_any_more_is_not_put_to_sleep_for_idleness(demand: dict[str, int]) -> None:
    asked = a_snapshot([a_deployment("a")], [an_instance("a")], [a_demand("a", **demand)])
    assert objection(asked, ActionKind.SLEEP, reason=Reason.IDLE) == "default/a is not idle any more"
    assert objection(asked, ActionKind.SLEEP, reason=Reason.PREEMPTED) is None, "a victim may be busy"


def test_a_request_that_only_the_engine_knows_of_counts_too() -> None:
    asked = a_snapshot([a_deployment("a")], [an_instance("a", in_flight=1)])
    assert objection(asked, ActionKind.SLEEP, reason=Reason.IDLE) == "default/a is not idle any more"


def test_what_would_not_fit_now_waits_and_says_how_much_is_missing() -> None:
    full = a_snapshot([a_deployment("a"), a_deployment("b")], [an_instance("b", resident_mib=500)])
    said = objection(full, ActionKind.START, budget_bytes=400 * MIB)
    assert (said or "").startswith("400 MiB are needed on cpu-0 and ")


def test_accepted_actions_take_their_room_from_later_ones() -> None:
    recheck = Recheck(a_snapshot([a_deployment("a"), a_deployment("b")]), NOW)
    first = an_action(ActionKind.START, "a", budget_bytes=400 * MIB)
    second = an_action(ActionKind.START, "b", budget_bytes=400 * MIB)
    assert recheck.objection(first) is None
    recheck.accept(first)
    said = recheck.objection(second)
    assert said is not None
    assert "400 MiB are needed on cpu-0 and 300 MiB can be had now" in said


def test_an_instance_may_shrink_whatever_the_room_and_grow_into_its_own() -> None:
    full = a_snapshot([a_deployment("a")], [an_instance("a")])
    assert objection(full, ActionKind.RESIZE, budget_bytes=200 * MIB) is None
    assert objection(full, ActionKind.RESIZE, budget_bytes=690 * MIB) is None
    assert objection(full, ActionKind.RESIZE, budget_bytes=701 * MIB) is not None


def test_nothing_goes_to_a_device_that_is_not_seen_or_not_well() -> None:
    gone = a_snapshot([a_deployment("a")], nodes=[a_node(reported_at=NOW - 60)])
    assert objection(gone, ActionKind.START) == "cpu-0 on n1 is not seen now"
    ill = a_snapshot([a_deployment("a")], nodes=[a_node([a_device(health=DeviceHealth.LEAKED)])])
    assert objection(ill, ActionKind.START) == "cpu-0 is DeviceMemoryLeaked"
