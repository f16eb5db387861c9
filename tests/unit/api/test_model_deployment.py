from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from estiba_operator.api import ModelDeployment, problems_of
from estiba_scheduler.domain import IdleMode, OffloadMode, PreemptionMode
from tests.builders import MIB


def a_document(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "estiba.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "a"},
        "spec": {"model": {"uri": "file:///models/a"}} | spec,
    }


def test_every_field_reaches_the_planner() -> None:
    read = ModelDeployment.model_validate(
        a_document(
            model={"uri": "file:///m", "revision": "r1", "dtype": "bfloat16"},
            engine={"type": "torch", "contextTokens": 1024, "maxBatch": 3},
            priority=7,
            replicas={"min": 1, "max": 2},
            kvCache="24MiB",
            objectives={"ttftSeconds": 2, "tpotSeconds": 0.5, "percentile": 0.9},
            offload={"mode": "Auto", "maxSlowdown": 3, "minResidentFraction": 0.25},
            preemption={"mode": "Never", "lowestRung": "sleep1"},
            idle={"mode": "Never", "afterSeconds": 60},
            placement={"devices": ["cpu-0"]},
        )
    ).to_deployment(created_at=5.0, generation=4)
    assert (read.id, read.created_at, read.generation) == ("default/a", 5.0, 4)
    assert read.model.model_dump(exclude={"digest"}) == {
        "uri": "file:///m",
        "revision": "r1",
        "dtype": "bfloat16",
        "engine": "torch",
        "context_tokens": 1024,
        "max_batch": 3,
    }
    assert (read.priority, read.min_replicas, read.max_replicas, read.kv_bytes_wanted) == (7, 1, 2, 24 * MIB)
    assert read.objectives.model_dump() == {"ttft_s": 2.0, "tpot_s": 0.5, "percentile": 0.9}
    assert (read.policies.offload, read.policies.max_slowdown) == (OffloadMode.AUTO, 3.0)
    assert read.policies.min_resident_fraction == 0.25
    assert (read.policies.preemption, read.policies.lowest_rung) == (PreemptionMode.NEVER, "sleep1")
    assert (read.policies.idle, read.policies.idle_s) == (IdleMode.NEVER, 60.0)
    assert read.devices == ("cpu-0",)


def test_written_out_and_read_again_it_is_the_same() -> None:
    document = ModelDeployment.model_validate(a_document(kvCache="1.5Gi", priority=3))
    written = document.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert written["spec"]["kvCache"] == "1536Mi"
    assert ModelDeployment.model_validate(written) == document


def test_what_kubernetes_adds_is_tolerated_and_not_read() -> None:
    document = a_document()
    document["metadata"] |= {"uid": "1-2", "resourceVersion": "77", "managedFields": [], "generation": 3}
    document["status"] = {"conditions": [{"type": "Ready"}]}
    read = ModelDeployment.model_validate(document)
    assert read.metadata.generation == 3
    assert "status" not in read.model_dump(mode="json", by_alias=True)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"prioritty": 1}, "spec.prioritty: there is no such field; did you mean 'priority'?"),
        ({"zzz": 1}, "spec.zzz: there is no such field; known are engine, idle, kvCache, model,"),
        ({"engine": {"maxbatch": 1}}, "spec.engine.maxbatch: there is no such field; did you mean 'maxBatch'?"),
        ({"model": {}}, "spec.model.uri: is missing"),
        ({"model": {"uri": ""}}, "spec.model.uri: '': "),
        ({"model": {"uri": "/models/a"}}, "write file:///models/a"),
        ({"model": {"uri": "s3://bucket/a"}}, "s3:// can't be served yet; download the model and write file:///"),
        ({"model": {"uri": "gopher://a"}}, "write one of file://..., package://..., random://..."),
        ({"model": {"uri": "file:///a", "dtype": "int3"}}, "spec.model.dtype: 'int3': "),
        ({"kvCache": "24 bananas"}, "spec.kvCache: '24 bananas': "),
        ({"kvCache": -1}, "spec.kvCache: -1: "),
        ({"kvCache": True}, "spec.kvCache: True: "),
        ({"priority": "high"}, "spec.priority: 'high': "),
        ({"priority": -1}, "spec.priority: -1: "),
        ({"replicas": {"min": 2}}, "spec.replicas: what is there: min 2 is above max 1; raise max or lower min"),
        ({"offload": {"mode": "Never", "maxSlowdown": 2}}, "contradict each other; leave one out"),
        ({"offload": {"maxSlowdown": 0.5}}, "spec.offload.maxSlowdown: 0.5: "),
        ({"preemption": {"lowestRung": "deep"}}, "spec.preemption.lowestRung: 'deep': "),
        ({"objectives": {"percentile": 95}}, "spec.objectives.percentile: 95: "),
        ({"idle": {"afterSeconds": float("nan")}}, "spec.idle.afterSeconds: nan: "),
        ({"objectives": {"ttftSeconds": float("inf")}}, "spec.objectives.ttftSeconds: inf: "),
    ],
)
def test_what_is_wrong_is_said_with_its_path_and_a_way_out(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as error:
        ModelDeployment.model_validate(a_document(**spec))
    assert said in "\n".join(problems_of(error.value))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a" * 200, "has 200 characters; write at most 40"),
        ("Assistant", "write lower-case letters, digits and '-'"),
        ("-a", "with a letter or digit at both ends"),
        ("a\n", "write lower-case letters"),
        ("", "write lower-case letters"),
        (7, "metadata.name: 7: "),
    ],
)
def test_names_are_what_kubernetes_and_clients_can_use(name: object, said: str) -> None:
    document = a_document()
    document["metadata"]["name"] = name
    with pytest.raises(ValidationError) as error:
        ModelDeployment.model_validate(document)
    (problem,) = problems_of(error.value)
    assert problem.startswith("metadata.name: ")
    assert said in problem
    assert len(problem) < 300, "a long name is not repeated at length"


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ValidationError) as error:
        ModelDeployment.model_validate(a_document(priority="x", kvCache="y", engine={"maxBatch": 0}))
    assert len(problems_of(error.value)) == 3
