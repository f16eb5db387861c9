"""What the API server makes of our definitions: defaults, columns, rules, subresources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from estiba_operator.api import ModelDeployment

from .cluster import DEPLOYMENTS, INSTANCES, Cluster, Refused

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "three-models.yaml"

pytestmark = pytest.mark.cluster


def a_deployment(name: str = "a", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "estiba.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": name},
        "spec": {"model": {"uri": "file:///models/a"}} | spec,
    }


def an_instance(name: str = "a-1", **spec: Any) -> dict[str, Any]:
    fields = {
        "deployment": "a",
        "model": {"uri": "file:///models/a"},
        "node": "n1",
        "device": "GPU-0",
        "residentBytes": 2**40,
        "kvBytes": 1,
        "budgetBytes": 2**41,
    }
    return {
        "apiVersion": "estiba.dev/v1alpha1",
        "kind": "ModelInstance",
        "metadata": {"name": name},
        "spec": fields | spec,
    }


def test_the_examples_are_taken_and_come_back_as_the_types_read_them(cluster: Cluster, namespace: str) -> None:
    for document in yaml.safe_load_all(EXAMPLES.read_text()):
        stored = cluster.create(namespace, DEPLOYMENTS, document)
        there = ModelDeployment.model_validate(stored)
        here = ModelDeployment.model_validate(document)
        assert there.spec == here.spec, "the server's defaults are the types' own"
    assert cluster.listed(namespace, DEPLOYMENTS) == ["assistant", "assistant-half", "batch"]


def test_the_server_fills_in_the_same_defaults_as_the_types(cluster: Cluster, namespace: str) -> None:
    stored = cluster.create(namespace, DEPLOYMENTS, a_deployment())
    assert stored["spec"]["replicas"] == {"min": 0, "max": 1}
    assert stored["spec"]["preemption"] == {"mode": "Auto", "lowestRung": "cold"}
    assert ModelDeployment.model_validate(stored).spec == ModelDeployment.model_validate(a_deployment()).spec


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (a_deployment("a" * 41), "write a name of at most 40 lower-case letters, digits and '-'"),
        (a_deployment("a.b"), "write a name of at most 40 lower-case letters, digits and '-'"),
        (a_deployment(prioritty=1), 'unknown field "spec.prioritty"'),
        (a_deployment(priority=-1), "spec.priority"),
        (a_deployment(kvCache="24GB "), "spec.kvCache"),
        (a_deployment(kvCache="24 gigs"), "spec.kvCache"),
        (a_deployment(model={"uri": "gopher://x"}), "models of this kind are not known; write one of file://..."),
        (a_deployment(model={}), "spec.model.uri: Required value"),
        (a_deployment(replicas={"min": 2, "max": 1}), "min is above max; raise max or lower min"),
        (
            a_deployment(offload={"mode": "Never", "maxSlowdown": 2}),
            "mode Never and maxSlowdown contradict each other; leave one out",
        ),
        (a_deployment(objectives={"ttftSeconds": 0}), "spec.objectives.ttftSeconds"),
        (a_deployment(preemption={"lowestRung": "deep"}), 'Unsupported value: "deep"'),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_k3_what_is_wrong_is_refused_at_the_door_with_words(
    cluster: Cluster, namespace: str, document: dict[str, Any], said: str
) -> None:
    with pytest.raises(Refused) as refused:
        cluster.create(namespace, DEPLOYMENTS, document)
    assert refused.value.code in (400, 422)
    assert said in str(refused.value)


def test_amounts_of_memory_are_taken_in_every_form_that_files_may_have(cluster: Cluster, namespace: str) -> None:
    for number, amount in enumerate(("64Mi", "64MiB", "1.5Gi", "24G", 1048576, "0")):
        stored = cluster.create(namespace, DEPLOYMENTS, a_deployment(f"a{number}", kvCache=amount))
        assert stored["spec"]["kvCache"] == amount
        ModelDeployment.model_validate(stored)


def test_kubectl_is_given_the_columns_that_people_look_for(cluster: Cluster, namespace: str) -> None:
    stored = cluster.create(namespace, DEPLOYMENTS, a_deployment(priority=7))
    stored["status"] = {
        "state": "Ready",
        "device": "GPU-0",
        "resident": "87%",
        "tpot": "49 ms",
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Serving", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ],
    }
    cluster.write_status(namespace, DEPLOYMENTS, stored)
    (row,) = cluster.table(namespace, DEPLOYMENTS)
    assert list(row)[:8] == ["Name", "Model", "Ready", "State", "GPU", "Resident", "TPOT", "Priority"]
    assert [row[name] for name in list(row)[1:8]] == ["file:///models/a", "True", "Ready", "GPU-0", "87%", "49 ms", 7]


def test_status_and_spec_are_written_apart(cluster: Cluster, namespace: str) -> None:
    stored = cluster.create(namespace, DEPLOYMENTS, a_deployment() | {"status": {"state": "Ready"}})
    assert "status" not in stored, "a user's status is not taken"
    stored["status"] = {"state": "Absent"}
    stored["spec"]["priority"] = 9
    after = cluster.write_status(namespace, DEPLOYMENTS, stored)
    assert after["status"]["state"] == "Absent"
    assert after["spec"]["priority"] == 0
    assert after["metadata"]["generation"] == 1, "a status is no change of what is wanted"


def test_the_scale_subresource_sets_the_most_replicas(cluster: Cluster, namespace: str) -> None:
    cluster.create(namespace, DEPLOYMENTS, a_deployment())
    cluster.scale(namespace, "a", 2)
    assert cluster.read(namespace, DEPLOYMENTS, "a")["spec"]["replicas"] == {"min": 0, "max": 2}


def test_an_agent_finds_its_nodes_instances_by_field(cluster: Cluster, namespace: str) -> None:
    cluster.create(namespace, INSTANCES, an_instance("a-1", node="n1"))
    cluster.create(namespace, INSTANCES, an_instance("a-2", node="n2"))
    assert cluster.listed(namespace, INSTANCES, "spec.node=n2") == ["a-2"]
    assert cluster.listed(namespace, INSTANCES, "spec.deployment=a") == ["a-1", "a-2"]


@pytest.mark.parametrize("field", ["node", "device", "deployment"])
def test_an_instance_stays_what_it_is(cluster: Cluster, namespace: str, field: str) -> None:
    stored = cluster.create(namespace, INSTANCES, an_instance())
    stored["spec"]["desired"] = "Asleep1"
    stored = cluster.replace(namespace, INSTANCES, stored)
    assert stored["metadata"]["generation"] == 2
    stored["spec"][field] = "another"
    with pytest.raises(Refused, match=f"{field} of an instance never changes; make a new one"):
        cluster.replace(namespace, INSTANCES, stored)
