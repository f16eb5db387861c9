from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from estiba.plan_state import BadPlanState, load_plan_state
from estiba_scheduler.domain import ActionKind, InstanceState, Provenance, Reason, Rung
from estiba_scheduler.planning import plan
from tests.builders import GIB, MIB, a_deployment, a_snapshot, an_instance

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def problem(tmp_path: Path, change: object) -> str:
    """What is said about the example with `change` applied to it."""
    state = yaml.safe_load((EXAMPLES / "plan-state.yaml").read_text())
    state["deployments"] = str(EXAMPLES / "three-models.yaml")
    if isinstance(change, dict):
        state |= change
    elif callable(change):
        change(state)
    file = tmp_path / "state.yaml"
    file.write_text(change if isinstance(change, str) else yaml.safe_dump(state))
    with pytest.raises(BadPlanState) as error:
        load_plan_state(file)
    return str(error.value)


def test_the_example_is_what_it_says() -> None:
    snapshot, now = load_plan_state(EXAMPLES / "plan-state.yaml")
    ((device,), (link,)) = (snapshot.nodes[0].devices, snapshot.nodes[0].links)
    assert (device.uuid, device.memory_bytes, link.limit_bytes_per_s) == ("cpu-0", 700 * MIB, 2 * GIB)
    half, batch, sleeper = snapshot.instances
    assert [i.state for i in snapshot.instances] == [InstanceState.READY, InstanceState.READY, InstanceState.ASLEEP1]
    assert half.status is not None
    assert half.status.resident_fraction == pytest.approx(0.6, abs=0.001)
    assert batch.spec.resident_bytes == 408 * MIB
    assert sleeper.status is not None
    assert sleeper.status.resident_bytes == 0
    profiles = snapshot.profiles["default/assistant"]["cpu"]
    assert [knot.resident_fraction for knot in profiles.sensitivity.knots] == [1.0, 0.8, 0.6, 0.21]
    assert {rung.rung: rung.seconds_s for rung in profiles.reload}[Rung.COLD] == 5.2
    assert snapshot.demand["default/assistant"].queued == 4
    assert snapshot.demand["default/assistant"].oldest_queued_at == pytest.approx(now - 0.5)


def test_the_example_plan_makes_room_for_who_waits() -> None:
    decided = plan(*load_plan_state(EXAMPLES / "plan-state.yaml"))
    preempted = [a for a in decided.actions if a.kind is ActionKind.SLEEP]
    assert "default/batch" in {a.deployment for a in preempted}
    assert {(a.reason, a.beneficiary) for a in preempted} == {(Reason.PREEMPTED, "default/assistant")}
    assert all("weighted s" in a.message and a.numbers["cost"] > 0 for a in preempted)


def test_what_was_not_said_is_estimated_and_labelled_so() -> None:
    snapshot, _ = load_plan_state(EXAMPLES / "plan-state.yaml")
    batch = snapshot.profiles["default/batch"]["cpu"]
    assert {rung.rung: rung.provenance for rung in batch.reload}[Rung.COLD] is Provenance.ESTIMATED


def test_a_snapshot_as_status_prints_it_is_read_back(tmp_path: Path) -> None:
    seen = a_snapshot([a_deployment("a")], [an_instance("a")])
    file = tmp_path / "snapshot.json"
    file.write_text(seen.model_dump_json())
    read, now = load_plan_state(file)
    assert read == seen
    assert now == seen.nodes[0].reported_at


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"devices": []}, "devices: "),
        ({"hostMemory": "4 bananas"}, "hostMemory: '4 bananas'"),
        ({"hostmemory": "4GiB"}, "hostmemory: there is no such field; did you mean 'hostMemory'?"),
        ({"deployments": "nowhere.yaml"}, "nowhere.yaml: can't be read: No such file"),
        ({"demand": {"nobody": {"queued": 1}}}, "the deployment 'nobody' is not known; there are: assistant,"),
        ({"instances": [{"deployment": "batch", "device": "gpu-7"}]}, "the device 'gpu-7' is not known"),
        ({"devices": [{"name": "c", "memory": "1GiB", "link": "fast"}]}, "devices.c.link: "),
        (
            lambda state: state["models"].pop("batch"),
            "models.batch: is missing; say its weights, layers and kvPerToken",
        ),
        ("- 1", "is not a mapping; examples/plan-state.yaml shows how"),
        ("a: [", "can't be read as YAML"),
        ("nodes: 7", "is not a snapshot"),
    ],
)
def test_a_state_that_can_not_be_used_says_where_and_why(tmp_path: Path, change: object, said: str) -> None:
    assert said in problem(tmp_path, change)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadPlanState, match="No such file"):
        load_plan_state(tmp_path / "nowhere.yaml")
