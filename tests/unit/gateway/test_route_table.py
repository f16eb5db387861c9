"""Names, routes and states that a table is read for."""

from __future__ import annotations

from typing import Any

import pytest

from estiba_gateway.route_table import AmbiguousModel, MetState, NoSuchModel, RouteTable
from estiba_scheduler.domain import Deployment, InstanceState, InstanceStatus, ProcessIdentity
from tests.builders import a_deployment, a_model, an_instance

URL = "http://127.0.0.1:9"


def a_status(state: InstanceState = InstanceState.READY, id: str = "a-1", **changes: Any) -> InstanceStatus:
    status = an_instance("a", state).status
    assert status is not None
    url = URL if state is InstanceState.READY else None
    return status.model_copy(update={"id": id, "url": url, **changes})


def a_table(*statuses: InstanceStatus, deployment: Deployment | None = None) -> RouteTable:
    return RouteTable.of([deployment or a_deployment("a")], statuses)


def test_a_model_is_found_by_its_name_and_with_its_namespace() -> None:
    table = RouteTable.of([a_deployment("a"), a_deployment("b", namespace="team")], [])
    assert table.find("a") is table.find("default/a")
    assert table.find("b") is table.find("team/b")
    with pytest.raises(NoSuchModel, match="'default/b'"):
        table.find("default/b")


def test_a_name_in_two_namespaces_means_the_default_one_or_nothing() -> None:
    both = [a_deployment("a", namespace="red"), a_deployment("a", namespace="blue")]
    with pytest.raises(AmbiguousModel, match="blue/a, red/a"):
        RouteTable.of(both, []).find("a")
    assert RouteTable.of([*both, a_deployment("a")], []).find("a").namespace == "default"


def test_only_ready_instances_with_an_address_are_routes() -> None:
    others = [a_status(state, f"a-{state}") for state in InstanceState if state is not InstanceState.READY]
    table = a_table(a_status(), a_status(id="a-2", url=None), *others)
    assert [route.instance for route in table.routes_of("default/a")] == ["a-1"]


@pytest.mark.parametrize(("wanted", "served", "routes"), [("x", "x", 1), ("x", "y", 0), (None, "y", 1), ("x", "", 1)])
def test_an_instance_with_other_weights_than_the_deployment_s_is_no_route(
    wanted: str | None, served: str, routes: int
) -> None:
    identity = ProcessIdentity(pid=1, started_at=1.0, model_digest=served)
    table = a_table(a_status(identity=identity), deployment=a_deployment("a", model=a_model("a", digest=wanted)))
    assert len(table.routes_of("default/a")) == routes


def test_a_route_is_another_one_once_the_agent_has_seen_something_new() -> None:
    route = a_table(a_status()).routes_of("default/a")[0]
    assert a_table(a_status(in_flight=3, reported_at=9.0)).routes_of("default/a")[0] == route
    for news in (
        {"url": "http://127.0.0.1:10"},
        {"state_since": 5.0},
        {"settled_generation": 9},
        {"identity": ProcessIdentity(pid=1, started_at=1.0, boot_id="b")},
    ):
        assert a_table(a_status(**news)).routes_of("default/a")[0] != route


@pytest.mark.parametrize(
    ("states", "met"),
    [
        ([], MetState.ABSENT),
        ([InstanceState.EVICTED], MetState.ABSENT),
        ([InstanceState.FAILED], MetState.FAILED),
        ([InstanceState.FAILED, InstanceState.ASLEEP2], MetState.ASLEEP2),
        ([InstanceState.ASLEEP2, InstanceState.ASLEEP1], MetState.ASLEEP1),
        ([InstanceState.DRAINING, InstanceState.STARTING], MetState.STARTING),
        ([InstanceState.PENDING], MetState.PENDING),
        ([InstanceState.ASLEEP1, InstanceState.READY], MetState.READY),
    ],
)
def test_a_model_is_in_the_state_of_its_instance_nearest_to_serving(states: list[InstanceState], met: MetState) -> None:
    statuses = [a_status(state, f"a-{n}") for n, state in enumerate(states)]
    assert a_table(*statuses).state_of("default/a") is met


def test_ready_without_an_address_is_unresponsive() -> None:
    assert a_table(a_status(url=None)).state_of("default/a") is MetState.UNRESPONSIVE


def test_instances_of_unknown_deployments_are_left_out() -> None:
    assert RouteTable.of([], [a_status()]).statuses_of("default/a") == ()
