from __future__ import annotations

from estiba_scheduler.domain import ActionKind, Objectives, PlannerMemory, Reason
from estiba_scheduler.planning import plan
from tests.builders import MIB, NOW, a_demand, a_deployment, a_device, a_node, a_profile, a_snapshot, an_instance
from tests.obedient_agent import ObedientCluster

from .looking import actions, the, told, verdict


def test_a_newcomer_is_let_in_by_shrinking_when_that_costs_less_than_putting_away() -> None:
    decided = plan(
        a_snapshot(
            [a_deployment("a"), a_deployment("b")],
            [an_instance("a")],
            [
                a_demand("a", in_flight=1, arrival_rate_per_s=0.2, output_tokens_mean=8),
                a_demand("b", waits=1, output_tokens_mean=8),
            ],
        ),
        NOW,
    )
    resize = the(decided, ActionKind.RESIZE, "a")
    assert (resize.reason, resize.beneficiary) == (Reason.SHRUNK, "default/b")
    assert resize.budget_bytes < resize.numbers["before_budget_bytes"]
    assert verdict(decided, "b").reason is Reason.WAITING_FOR_ROOM
    assert not actions(decided, ActionKind.START), "it starts when the room is there"


def test_bytes_go_to_the_model_that_is_steep_and_not_to_the_one_above_its_knee() -> None:
    """The flat one computes so long that its copies hide; the steep one has nothing to hide behind."""
    steep, flat = a_profile("steep", compute_s=0.02), a_profile("flat", compute_s=0.4)
    cluster = ObedientCluster(
        [a_node([a_device(memory_mib=750)])],
        [a_deployment("flat"), a_deployment("steep")],
        {"steep": steep, "flat": flat},
    )
    for i in range(60):
        cluster.request("flat", i, tokens=4)
        cluster.request("steep", i + 0.5, tokens=4)
    cluster.run(50)
    resident = {e.spec.deployment: e.resident_bytes for e in cluster.engines.values()}
    assert resident["default/steep"] > 1.5 * resident["default/flat"], cluster.story


def test_a_model_needed_more_gets_more() -> None:
    cluster = ObedientCluster([a_node()], [a_deployment("busy"), a_deployment("quiet", min_replicas=1)])
    for i in range(120):
        cluster.request("busy", i * 0.5, tokens=4)
    cluster.run(60)
    resident = {e.spec.deployment: e.resident_bytes for e in cluster.engines.values()}
    assert resident["default/busy"] > resident["default/quiet"], cluster.story


def test_max_slowdown_keeps_the_bytes_that_it_takes() -> None:
    picky = a_deployment("a", policies={"max_slowdown": 2.0})
    node = a_node([a_device(memory_mib=450)])
    said = plan(a_snapshot([picky], demand=[a_demand("a", waits=1)], nodes=[node]), NOW)
    assert verdict(said, "a").reason is Reason.INSUFFICIENT_MEMORY, told(said)
    relaxed = a_deployment("a", policies={"max_slowdown": 6.0})
    start = the(plan(a_snapshot([relaxed], demand=[a_demand("a", waits=1)], nodes=[node]), NOW), ActionKind.START, "a")
    assert start.numbers["tpot_s"] <= 6.0 * 0.05


def test_min_resident_fraction_is_kept() -> None:
    half = a_deployment("a", policies={"min_resident_fraction": 0.5})
    node = a_node([a_device(memory_mib=300)])
    assert verdict(plan(a_snapshot([half], demand=[a_demand("a", waits=1)], nodes=[node]), NOW), "a").reason is (
        Reason.INSUFFICIENT_MEMORY
    )


def test_o2_a_model_that_now_fits_is_brought_back() -> None:
    decided = plan(
        a_snapshot([a_deployment("a")], [an_instance("a", resident_mib=180)], [a_demand("a", in_flight=1)]), NOW
    )
    grow = the(decided, ActionKind.RESIZE, "a")
    assert grow.reason is Reason.GROWN
    assert grow.resident_bytes == 500 * MIB
    assert "instead of" in grow.message


def test_o2_no_sooner_than_the_cool_down_and_the_next_pass_is_asked_for() -> None:
    memory = PlannerMemory(last_resize_at={"cpu-0": NOW - 4})
    decided = plan(
        a_snapshot(
            [a_deployment("a")], [an_instance("a", resident_mib=180)], [a_demand("a", in_flight=1)], memory=memory
        ),
        NOW,
    )
    assert not decided.actions
    assert decided.next_pass_s is not None
    assert decided.next_pass_s <= 6


def test_o2_above_the_knee_nothing_is_resized() -> None:
    profile = a_profile("a", compute_s=0.4)
    decided = plan(
        a_snapshot(
            [a_deployment("a")],
            [an_instance("a", profile=profile, resident_mib=300)],
            [a_demand("a", in_flight=1)],
            {"a": profile},
        ),
        NOW,
    )
    assert not decided.actions, told(decided)


def test_o1_a_model_whose_offload_is_ineffective_is_left_alone_and_named() -> None:
    running = an_instance("a", resident_mib=180, offload_effective=False)
    decided = plan(a_snapshot([a_deployment("a")], [running], [a_demand("a", in_flight=1)]), NOW)
    assert not decided.actions
    assert verdict(decided, "a").reason is Reason.OFFLOAD_INEFFECTIVE


def test_shrinks_come_first_and_growing_waits_until_they_are_settled() -> None:
    """Bytes move from the flat model to the steep one: in the first pass only the flat one changes."""
    steep, flat = a_profile("steep", compute_s=0.02), a_profile("flat", compute_s=0.4)
    snapshot = a_snapshot(
        [a_deployment("flat"), a_deployment("steep")],
        [an_instance("flat", profile=flat, resident_mib=420), an_instance("steep", profile=steep, resident_mib=180)],
        [
            a_demand("flat", in_flight=1, arrival_rate_per_s=0.3),
            a_demand("steep", in_flight=1, arrival_rate_per_s=0.3),
        ],
        {"steep": steep, "flat": flat},
        [a_node([a_device(memory_mib=830)])],
    )
    decided = plan(snapshot, NOW)
    assert the(decided, ActionKind.RESIZE, "flat").reason is Reason.SHRUNK
    assert not actions(decided, name="steep"), told(decided)
    assert [r.deployment for r in decided.memory.reservations] == ["default/steep"]


def test_an_objective_that_would_be_missed_draws_bytes() -> None:
    """Two models alike, but one promises 0.25 s a token."""
    strict = a_deployment("strict", objectives=Objectives(tpot_s=0.25))
    cluster = ObedientCluster([a_node()], [a_deployment("lax", objectives=Objectives(tpot_s=5)), strict])
    for i in range(60):
        cluster.request("lax", i, tokens=4)
        cluster.request("strict", i + 0.5, tokens=4)
    cluster.run(50)
    tpot = {v.deployment: v.predicted_tpot_s for v in cluster.last_plan.verdicts}
    assert (tpot["default/strict"] or 9) <= 0.25, cluster.story
