"""The policies that Estiba is compared with do what their namesakes do, and do it soundly."""

from __future__ import annotations

import pytest

from estiba_scheduler.domain import ActionKind, InstanceState
from estiba_scheduler.policies import by_name
from tests.builders import NOW, a_demand, a_deployment, a_device, a_node, a_snapshot, an_instance
from tests.obedient_agent import ObedientCluster

SWITCHES = (ActionKind.START, ActionKind.EVICT)


def a_cluster(policy: str, *names: str, memory_mib: int = 700) -> ObedientCluster:
    node = a_node([a_device(memory_mib=memory_mib)])
    return ObedientCluster([node], [a_deployment(n) for n in names], decide=by_name(policy))


@pytest.mark.parametrize("policy", ["lru", "fit"])
def test_a_request_loads_its_model_and_is_served(policy: str) -> None:
    cluster = a_cluster(policy, "a")
    request = cluster.request("a")
    cluster.run(10)
    assert request.done_at is not None, cluster.story
    assert cluster.state("a") is InstanceState.READY


@pytest.mark.parametrize("policy", ["lru", "fit"])
def test_an_idle_model_stays_for_five_minutes_and_no_longer(policy: str) -> None:
    cluster = a_cluster(policy, "a")
    request = cluster.request("a")
    cluster.run(10)
    assert request.done_at is not None
    cluster.run(280)
    assert cluster.state("a") is InstanceState.READY, cluster.story
    cluster.run(40)
    assert cluster.state("a") is None, cluster.story


def test_lru_evicts_what_was_used_least_recently_and_never_offloads_or_sleeps() -> None:
    cluster = a_cluster("lru", "a", "b")
    first, second = cluster.request("a"), cluster.request("b", 8)
    cluster.run(30)
    assert [(a.kind, a.deployment[-1]) for _, a in cluster.kinds(*SWITCHES)] == [
        (ActionKind.START, "a"),
        (ActionKind.EVICT, "a"),
        (ActionKind.START, "b"),
    ], cluster.story
    assert first.done_at is not None
    assert second.done_at is not None
    weights = cluster.profiles["default/a"].footprint.weight_bytes
    assert all(a.resident_bytes == weights for _, a in cluster.kinds(ActionKind.START))
    assert not cluster.kinds(ActionKind.SLEEP, ActionKind.RESIZE, ActionKind.WAKE)


def test_fit_loads_as_many_layers_as_there_is_room_for_beside_the_others() -> None:
    cluster = a_cluster("fit", "a", "b", memory_mib=800)
    first, second = cluster.request("a"), cluster.request("b", 8)
    cluster.run(40)
    starts = {a.deployment[-1]: a for _, a in cluster.kinds(ActionKind.START)}
    weights = cluster.profiles["default/a"].footprint.weight_bytes
    assert starts["a"].resident_bytes == weights
    assert 0 < starts["b"].resident_bytes < weights, "the second is offloaded, whoever that hurts"
    assert not cluster.kinds(ActionKind.EVICT), cluster.story
    assert first.done_at is not None
    assert second.done_at is not None


def test_fit_evicts_only_where_even_the_least_of_a_model_has_no_room() -> None:
    cluster = a_cluster("fit", "a", "b", "c", memory_mib=800)
    for index, name in enumerate("abc"):
        cluster.request(name, 10.0 * index)
    cluster.run(80)
    evicted = [a.deployment[-1] for _, a in cluster.kinds(ActionKind.EVICT)]
    assert evicted == ["a"], cluster.story
    assert all(r.done_at is not None for r in cluster.requests)


@pytest.mark.parametrize("policy", ["lru", "fit"])
def test_a_pinned_model_is_not_evicted_by_them_either(policy: str) -> None:
    pinned = a_deployment("a", policies={"preemption": "Never", "offload": "Never"})
    other = a_deployment("b", policies={"offload": "Never"})
    cluster = ObedientCluster([a_node()], [pinned, other], decide=by_name(policy))
    cluster.request("a")
    cluster.request("b", 8)
    cluster.run(40)
    assert cluster.state("a") is InstanceState.READY
    assert not cluster.kinds(ActionKind.EVICT), cluster.story
    assert cluster.now > NOW


def test_an_unknown_policy_is_named_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match="estiba, lru, fit"):
        by_name("best")


@pytest.mark.parametrize(("waited", "evicted"), [(5.0, False), (3.0, True)], ids=["came earlier", "came later"])
@pytest.mark.parametrize("policy", ["lru", "fit"])
def test_a_model_that_was_just_loaded_serves_who_came_earlier_before_it_is_evicted(
    policy: str, waited: float, evicted: bool
) -> None:
    """It is ready, and the gateway has not passed its requests on yet."""
    deployments = [a_deployment(name, policies={"offload": "Never"}) for name in "ab"]
    demand = [a_demand("a", waits=waited), a_demand("b", waits=4.0)]
    snapshot = a_snapshot(deployments, [an_instance("a")], demand, nodes=[a_node([a_device(memory_mib=600)])])
    decided = by_name(policy)(snapshot, NOW)
    assert [a.deployment for a in decided.actions if a.kind is ActionKind.EVICT] == ["default/a"] * evicted
