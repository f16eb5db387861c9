from __future__ import annotations

import io

from rich.console import Console

from estiba.status_report import status_tables
from estiba.up.status_view import ModelStanding, StatusView, status_view
from estiba_scheduler.domain import InstanceState, Plan, Provenance, Rung, Snapshot
from estiba_scheduler.planning import plan
from estiba_scheduler.prediction import idle_s
from tests.builders import NOW, PRODUCT, a_demand, a_deployment, a_device, a_node, a_profile, a_snapshot, an_instance


def viewed(snapshot: Snapshot, decided: Plan | None = None) -> StatusView:
    return status_view(snapshot, decided or plan(snapshot, NOW), at=NOW, policy="estiba", gateway_url="http://g")


def the(view: StatusView, name: str = "a") -> ModelStanding:
    return next(model for model in view.models if model.name == name)


def shown(view: StatusView) -> str:
    console = Console(width=250, record=True, file=io.StringIO())
    console.print(status_tables(view))
    return console.export_text()


def test_the_numbers_are_the_agents_own() -> None:
    running = an_instance("a", resident_mib=300, tpot_s=0.07, in_flight=2)
    view = viewed(a_snapshot([a_deployment("a", priority=7)], [running], [a_demand("a", queued=3, requests_total=9)]))
    model = the(view)
    assert running.status is not None
    assert (model.state, model.device, model.priority) == ("Ready", "cpu-0", 7)
    assert (model.resident_fraction, model.tpot_s) == (running.status.resident_fraction, 0.07)
    assert (model.queued, model.in_flight, model.requests_total) == (3, 2, 9)
    assert view.instances[0].status == running.status
    assert view.profiles == (a_profile("a"),)


def test_wake_costs_are_those_of_the_rung_that_it_is_on() -> None:
    costs = {"Asleep1": 0.4, "Asleep2": 1.0, "Failed": 4.0, "Ready": 0.4}
    for state, seconds in costs.items():
        view = viewed(a_snapshot([a_deployment("a")], [an_instance("a", InstanceState(state))]), Plan())
        assert the(view).wake_s == seconds, state
        assert view.instances[0].wake_s == seconds, state
    assert the(viewed(a_snapshot([a_deployment("a")]), Plan())).wake_s == 4.0


def test_z3_asleep_is_told_as_asleep_with_what_waking_takes() -> None:
    view = viewed(a_snapshot([a_deployment("a")], [an_instance("a", InstanceState.ASLEEP1)]))
    model = the(view)
    assert (model.state, model.reason) == ("Asleep1", "Asleep")
    assert model.resident_fraction is None, "nothing of it is resident, and 0 % would look like offloaded"
    assert model.message == "a is asleep level 1, wakes in 0.4 s"
    assert view.problems == ()


def test_the_foremost_of_several_instances_stands_for_the_model() -> None:
    both = [
        an_instance("a", InstanceState.FAILED),
        an_instance("a", InstanceState.READY, id="a-2", resident_mib=100),
    ]
    assert the(viewed(a_snapshot([a_deployment("a")], both))).state == "Ready"


def test_the_idle_time_is_told_unless_it_never_idles() -> None:
    for changes, expected in (
        ({}, idle_s(a_profile("a"), Rung.SLEEP1)),
        ({"policies": {"idle_s": 77}}, 77.0),
        ({"policies": {"idle": "Never"}}, None),
        ({"min_replicas": 1}, None),
    ):
        assert the(viewed(a_snapshot([a_deployment("a", **changes)], [an_instance("a")]))).idle_after_s == expected


def test_what_is_only_estimated_is_labelled_wherever_it_shows() -> None:
    guessed = a_profile("a", measured_at=0.0)
    snapshot = a_snapshot([a_deployment("a")], profiles={"a": guessed})
    view = viewed(snapshot)
    assert the(view).profile is Provenance.ESTIMATED
    text = shown(view)
    assert "4 s estimated" in text


def test_tables_show_models_instances_devices_and_problems() -> None:
    running = an_instance("a", resident_mib=300, tpot_s=0.07)
    snapshot = a_snapshot(
        [a_deployment("a"), a_deployment("b", namespace="team")],
        [running],
        nodes=[a_node([a_device(detail="fan is loud")])],
    )
    view = viewed(snapshot).model_copy(update={"problems": ("Redis is away",)})
    text = shown(view)
    for words in (
        "problem: Redis is away",
        "a-1",
        "team/b",
        "Absent",
        "70 ms",
        "60%",
        PRODUCT,
        "fan is loud",
        "http://g/v1",
    ):
        assert words in text, f"{words}:\n{text}"
