"""The definitions say what the types say, in a form that an API server takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from estiba_operator.crds import NotStructural, custom_resource_definitions, structural
from estiba_operator.crds.__main__ import texts

ROOT = Path(__file__).resolve().parents[3]
DEFINITIONS = custom_resource_definitions()


def schema_of(plural: str) -> dict[str, Any]:
    (version,) = DEFINITIONS[plural]["spec"]["versions"]
    return dict(version["schema"]["openAPIV3Schema"])


def nodes(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from nodes(schema[word], f"{path}[]")


def test_the_files_are_what_the_types_say() -> None:
    """`python -m estiba_operator.crds` writes them anew."""
    written = {file.name: file.read_text() for file in (ROOT / "crds").glob("*.yaml")}
    assert written == texts()


@pytest.mark.parametrize("plural", DEFINITIONS)
def test_every_field_is_described_and_of_one_type(plural: str) -> None:
    for path, schema in nodes(schema_of(plural), plural):
        assert schema.get("type") or schema.get("x-kubernetes-int-or-string"), path
        assert schema.get("description") or path.endswith((".metadata", "[]")), path
        assert not {"$ref", "oneOf", "const", "title"} & set(schema), path
        assert isinstance(schema.get("exclusiveMinimum", True), bool), path
        if "anyOf" in schema:
            assert schema["x-kubernetes-int-or-string"] is True, path


@pytest.mark.parametrize("plural", DEFINITIONS)
def test_what_a_server_stores_is_bounded(plural: str) -> None:
    """A definition is read into every kubectl, and rules on unbounded strings are refused as too dear."""
    assert len(texts()[f"estiba.dev_{plural}.yaml"]) < 32 * 1024
    for path, schema in nodes(schema_of(plural)["properties"]["spec"], plural):
        free = schema.get("type") == "string" and "enum" not in schema
        assert not free or "maxLength" in schema, path
        if schema.get("type") == "array":
            assert "maxItems" in schema, path


def test_names_by_which_people_call_them() -> None:
    names = {
        plural: (d["spec"]["names"]["shortNames"], d["spec"]["scope"], d["spec"]["names"]["categories"])
        for plural, d in DEFINITIONS.items()
    }
    assert names == {
        "modeldeployments": (["emd"], "Namespaced", ["estiba"]),
        "modelinstances": (["emi"], "Namespaced", ["estiba"]),
        "modelprofiles": (["emp"], "Cluster", ["estiba"]),
    }


def test_what_can_not_be_said_structurally_is_an_error_with_its_path() -> None:
    class Either(BaseModel):
        value: int | str

    class Unknown(BaseModel):
        value: object

    for kind in (Either, Unknown):
        with pytest.raises(NotStructural, match=f"{kind.__name__}.value: "):
            structural(kind)


def test_bounds_and_nested_defaults_are_said_the_kubernetes_way() -> None:
    spec = schema_of("modeldeployments")["properties"]["spec"]["properties"]
    ttft = spec["objectives"]["properties"]["ttftSeconds"]
    assert (ttft["minimum"], ttft["exclusiveMinimum"], ttft["maximum"]) == (0, True, 86400)
    assert spec["replicas"]["default"] == {"min": 0, "max": 1}
    assert spec["offload"]["default"] == {"mode": "Auto", "minResidentFraction": 0.0}
    assert spec["kvCache"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert "default" not in spec["offload"]["properties"]["maxSlowdown"]


def test_conditions_are_a_map_by_type() -> None:
    for plural in ("modeldeployments", "modelinstances"):
        conditions = schema_of(plural)["properties"]["status"]["properties"]["conditions"]
        assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == ("map", ["type"])


def test_examples_hold_no_field_that_the_definition_does_not_know() -> None:
    known = {path for path, _ in nodes(schema_of("modeldeployments"), "")}
    for document in yaml.safe_load_all((ROOT / "examples" / "three-models.yaml").read_text()):
        for path in paths(document, ""):
            assert path in known or path.startswith(".metadata."), path


def paths(value: object, path: str) -> Iterator[str]:
    if path:
        yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from paths(inner, f"{path}.{name}")
