"""What holds for every snapshot and every history, found by trying many."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from estiba_scheduler.domain import (
    ActionKind,
    Deployment,
    InstanceState,
    Plan,
    Reason,
    Snapshot,
)
from estiba_scheduler.planning import plan
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

from .looking import told

SEARCH = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
"""Not Phase.explain: tracing every line of a planner that runs for minutes of simulated time takes minutes of ours."""
FEW = settings(max_examples=60, deadline=None, phases=SEARCH, suppress_health_check=[HealthCheck.too_slow])
FEWER = settings(max_examples=25, deadline=None, phases=SEARCH, suppress_health_check=[HealthCheck.too_slow])

policies = st.fixed_dictionaries(
    {},
    optional={
        "offload": st.sampled_from(["Auto", "Never"]),
        "preemption": st.sampled_from(["Auto", "Never"]),
        "lowest_rung": st.sampled_from(["none", "sleep1", "sleep2", "cold"]),
        "min_resident_fraction": st.sampled_from([0.0, 0.3, 0.6]),
        "max_slowdown": st.sampled_from([1.5, 4.0]),
        "idle_s": st.sampled_from([0.0, 30.0]),
        "idle": st.sampled_from(["Auto", "Never"]),
    },
)


@st.composite
def deployments(draw: st.DrawFn) -> list[Deployment]:
    return [
        a_deployment(
            f"m{i}",
            priority=draw(st.sampled_from([0, 0, 10, 100])),
            min_replicas=draw(st.sampled_from([0, 0, 1])),
            policies=draw(policies),
        )
        for i in range(draw(st.integers(1, 5)))
    ]


def profile_of(draw: st.DrawFn, name: str) -> Any:
    weight = draw(st.sampled_from([60, 200, 350, 500]))
    foot = a_footprint(
        weight_mib=weight,
        fixed_mib=weight // 5,
        layers=draw(st.sampled_from([4, 10])),
        host_factor=draw(st.sampled_from([1.0, 1.9])),
        sleep1_host_bytes=weight * MIB,
        sleep1_device_bytes=draw(st.sampled_from([0, 5 * MIB])),
        sleep2_device_bytes=draw(st.sampled_from([0, 5 * MIB])),
    )
    return a_profile(name, footprint=foot, compute_s=draw(st.sampled_from([0.02, 0.1, 0.4])))


@st.composite
def clusters(draw: st.DrawFn) -> ObedientCluster:
    wanted = draw(deployments())
    devices = [
        a_device(f"cpu-{i}", memory_mib=draw(st.sampled_from([300, 550, 700, 1200])))
        for i in range(draw(st.integers(1, 2)))
    ]
    node = a_node(devices, host_mib=draw(st.sampled_from([150, 700, 4000])))
    return ObedientCluster([node], wanted, {d.name: profile_of(draw, d.name) for d in wanted}, step_s=0.5)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Any mixture of states, in any progress, within the device's memory or not."""
    wanted = draw(deployments())
    profiles = {d.name: profile_of(draw, d.name) for d in wanted}
    states = [s for s in InstanceState if s is not InstanceState.EVICTED]
    instances, demand = [], []
    for d in wanted:
        if draw(st.booleans()):
            state = draw(st.sampled_from(states))
            settled = draw(st.booleans())
            weight = profiles[d.name].footprint.weight_bytes // MIB
            instances.append(
                an_instance(
                    d.name,
                    state,
                    profiles[d.name],
                    resident_mib=draw(st.sampled_from([weight, weight // 2, weight // 5])),
                    device=draw(st.sampled_from(["cpu-0", "cpu-1"])),
                    spec_generation=3 if settled else 4,
                    in_flight=draw(st.integers(0, 2)),
                    state_since=NOW - draw(st.sampled_from([0, 5, 500])),
                    reason=draw(st.sampled_from(["", "OutOfMemory", "EngineExited"])),
                )
            )
        if draw(st.booleans()):
            demand.append(
                a_demand(
                    d.name,
                    waits=draw(st.sampled_from([None, 0.5, 100.0])),
                    arrival_rate_per_s=draw(st.sampled_from([0.0, 0.1, 2.0])),
                    last_request_at=NOW - draw(st.sampled_from([1.0, 1000.0])),
                )
            )
    devices = [
        a_device("cpu-0", memory_mib=draw(st.sampled_from([550, 1200]))),
        a_device("cpu-1", memory_mib=700, foreign_bytes=draw(st.sampled_from([0, 200 * MIB]))),
    ]
    host = draw(st.sampled_from([150, 700, 4000]))
    return a_snapshot(wanted, instances, demand, profiles, [a_node(devices, host_mib=host)])


def give_it_work(cluster: ObedientCluster, seed: int, seconds: float, rate: float) -> None:
    chance = random.Random(seed)
    for deployment in cluster.deployments:
        at = chance.expovariate(rate)
        while at < seconds:
            cluster.request(deployment.name, at, tokens=chance.choice([1, 8, 40]))
            at += chance.expovariate(rate)


@FEWER
@given(clusters(), st.integers(0, 1000), st.sampled_from([0.03, 0.3]))
def test_no_device_and_no_host_is_ever_over_its_budget(cluster: ObedientCluster, seed: int, rate: float) -> None:
    """Not even in a transition: the double counts the larger of old and new, and fails at once."""
    give_it_work(cluster, seed, 50, rate)
    cluster.run(60)


@FEW
@given(snapshots())
def test_the_actions_of_one_plan_fit_beside_everything_that_is_held(snapshot: Snapshot) -> None:
    decided = plan(snapshot, NOW)
    for device in snapshot.nodes[0].devices:
        held = {
            i.id: max(i.status.device_bytes, i.spec.budget_bytes if str(i.spec.desired) == "Running" else 0)
            if i.state is not InstanceState.FAILED
            else i.status.device_bytes
            for i in snapshot.instances
            if i.status is not None and i.spec.device == device.uuid
        }
        before = sum(held.values())
        larger = [
            a for a in decided.actions if a.device == device.uuid and a.kind in (ActionKind.START, ActionKind.WAKE)
        ]
        grown = [
            a
            for a in decided.actions
            if a.device == device.uuid
            and a.kind is ActionKind.RESIZE
            and a.instance is not None
            and a.budget_bytes > held[a.instance]
        ]
        for action in (*larger, *grown):
            key = action.instance or f"new {action.deployment}"
            held[key] = max(held.get(key, 0), action.budget_bytes)
        if larger or grown:
            assert sum(held.values()) <= device.usable_bytes, told(decided)
        else:
            assert sum(held.values()) == before


@FEW
@given(snapshots())
def test_the_same_snapshot_gives_the_same_plan(snapshot: Snapshot) -> None:
    assert plan(snapshot, NOW) == plan(Snapshot.model_validate(snapshot.model_dump()), NOW)


@FEW
@given(snapshots(), st.integers(0, 1000))
def test_the_order_of_what_is_observed_does_not_matter(snapshot: Snapshot, seed: int) -> None:
    chance = random.Random(seed)

    def mixed(values: Any) -> Any:
        return tuple(chance.sample(list(values), len(values)))

    node = snapshot.nodes[0]
    shuffled = snapshot.model_copy(
        update={
            "nodes": (node.model_copy(update={"devices": mixed(node.devices)}),),
            "deployments": mixed(snapshot.deployments),
            "instances": mixed(snapshot.instances),
            "demand": dict(mixed(snapshot.demand.items())),
            "profiles": dict(mixed(snapshot.profiles.items())),
        }
    )
    assert plan(shuffled, NOW) == plan(snapshot, NOW)


@FEW
@given(snapshots())
def test_a_pinned_model_is_never_a_victim(snapshot: Snapshot) -> None:
    pinned = {d.id for d in snapshot.deployments if str(d.policies.preemption) == "Never"}
    for action in plan(snapshot, NOW).actions:
        if action.deployment in pinned and action.kind in (ActionKind.SLEEP, ActionKind.EVICT):
            assert action.reason is not Reason.PREEMPTED, action.message


@FEW
@given(snapshots())
def test_nobody_is_put_away_lower_than_its_policy_allows(snapshot: Snapshot) -> None:
    depth = {"none": 0, "sleep1": 1, "sleep2": 2, "cold": 3}
    allowed = {d.id: depth[d.policies.lowest_rung] for d in snapshot.deployments}
    for action in plan(snapshot, NOW).actions:
        if action.reason in (Reason.PREEMPTED, Reason.IDLE):
            if action.kind is ActionKind.SLEEP:
                assert (action.level or 9) <= allowed[action.deployment], action.message
            if action.kind is ActionKind.EVICT:
                assert allowed[action.deployment] == 3, action.message


@FEW
@given(snapshots())
def test_every_deployment_has_one_verdict_and_every_action_a_sentence(snapshot: Snapshot) -> None:
    decided: Plan = plan(snapshot, NOW)
    assert [v.deployment for v in decided.verdicts] == sorted(d.id for d in snapshot.deployments)
    assert all(len(v.message) > 8 for v in decided.verdicts)
    touched = [a.instance or a.deployment for a in decided.actions]
    assert len(touched) == len(set(touched)), f"one action an instance:\n{told(decided)}"
    assert all(a.message for a in decided.actions)
    fences = {i.id: i.spec.generation for i in snapshot.instances}
    assert all(a.expected_generation == fences[a.instance] for a in decided.actions if a.instance is not None)


@FEWER
@given(clusters(), st.integers(0, 1000))
def test_planning_again_on_what_has_settled_changes_nothing(cluster: ObedientCluster, seed: int) -> None:
    """After the work there is a long quiet time; then a minute without a single action."""
    give_it_work(cluster, seed, 20, 0.2)
    cluster.run(160)
    before = len(cluster.actions)
    cluster.run(60)
    assert len(cluster.actions) == before, cluster.story


@FEWER
@given(clusters(), st.sampled_from([1.0, 3.0, 7.0]))
def test_alternating_demand_does_not_thrash(cluster: ObedientCluster, period: float) -> None:
    """Between two residencies of one model at equal priority lies at least a minimum residency of another."""
    for i in range(int(80 / period)):
        cluster.request(cluster.deployments[i % len(cluster.deployments)].name, i * period, tokens=2)
    cluster.run(100)
    preempted = [at for at, a in cluster.actions if a.reason is Reason.PREEMPTED and a.kind is not ActionKind.EVICT]
    devices = len(cluster.nodes[0].devices)
    # A switch takes 0.6 s at least; at most a tenth of the time of each device, and several victims may go at once;
    # higher priority is let in after a tenth of a residency.
    equal = len({d.priority for d in cluster.deployments}) == 1
    if equal:
        assert len(preempted) <= devices * len(cluster.deployments) * (100 / 6 + 1), cluster.story


@pytest.mark.parametrize("count", [40])
def test_a_pass_over_many_deployments_is_quick_enough_to_run_every_second(count: int) -> None:
    """Counted in work, not in time: the number of curve evaluations of a pass."""
    from estiba_scheduler.prediction import decode

    calls = 0
    original = decode.DecodeCurve.predict

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return original(self, *args, **kwargs)

    node = a_node([a_device(f"cpu-{i}", memory_mib=1500) for i in range(8)], host_mib=100_000)
    names = [f"m{i:02}" for i in range(count)]
    instances = [an_instance(n, device=f"cpu-{i % 8}", resident_mib=180) for i, n in enumerate(names[:24])]
    demand = [a_demand(n, in_flight=1) for n in names[:24]] + [a_demand(n, waits=3) for n in names[24:]]
    snapshot = a_snapshot([a_deployment(n) for n in names], instances, demand, nodes=[node])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode.DecodeCurve, "predict", counted)
        plan(snapshot, NOW)
    assert calls < 20_000
