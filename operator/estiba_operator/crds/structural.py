"""From pydantic's JSON schema to the structural OpenAPI v3 schema that a CustomResourceDefinition takes.

Structural means: every level has one type, nothing is referred to, and what pydantic says with `anyOf`, `const` and
numeric exclusive bounds is said the Kubernetes way. Anything that could not be said that way is an error here.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

KEPT = (
    "description",
    "type",
    "format",
    "enum",
    "default",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
)
MOST_PROPERTIES = 64
"""Of a map of strings, such as labels: without a bound, CEL rules on it are too dear for the API server."""


class NotStructural(ValueError):
    """A type that Kubernetes can't be told about; `str()` has the path."""


def structural(kind: type[BaseModel]) -> Schema:
    """The schema of an object of this type. Raises NotStructural."""
    schema = kind.model_json_schema(by_alias=True, mode="validation")
    return _converted(schema, schema.get("$defs", {}), kind.__name__)


def _converted(given: Schema, definitions: dict[str, Schema], path: str) -> Schema:
    schema = _resolved(given, definitions)
    if "x-kubernetes-int-or-string" in schema:
        kept = {key: schema[key] for key in ("description", "pattern", "default") if key in schema}
        return kept | {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    if "anyOf" in schema:
        options = [option for option in schema["anyOf"] if option.get("type") != "null"]
        if len(options) != 1:
            raise NotStructural(f"{path}: may be of {len(options)} types")
        outer = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
        return _converted(options[0] | outer, definitions, path)
    if "const" in schema:
        schema = schema | {"enum": [schema["const"]]}
    if "type" not in schema:
        raise NotStructural(f"{path}: has no type")
    made = {key: schema[key] for key in KEPT if key in schema}
    made |= {key: value for key, value in schema.items() if key.startswith("x-kubernetes-")}
    for word, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if word in schema:
            made |= {bound: schema[word], word: True}
    if schema["type"] == "integer":
        made["format"] = "int64"
    if schema["type"] == "object":
        made |= _object(schema, definitions, path)
    if schema["type"] == "array":
        made["items"] = _converted(schema.get("items", {}), definitions, f"{path}[]")
        if made.get("default") == []:
            del made["default"]  # to be left out says the same, and shorter
    return made


def _object(schema: Schema, definitions: dict[str, Schema], path: str) -> Schema:
    made: Schema = {}
    if "properties" in schema:
        made["properties"] = {
            name: _converted(inner, definitions, f"{path}.{name}") for name, inner in schema["properties"].items()
        }
        if "default" in schema:
            # Written out, although what is in it has defaults of its own: rules are held against it as it stands.
            made["default"] = {name: value for name, value in schema["default"].items() if value is not None}
    elif isinstance(schema.get("additionalProperties"), dict):
        made["additionalProperties"] = _converted(schema["additionalProperties"], definitions, f"{path}{{}}")
        made["maxProperties"] = MOST_PROPERTIES
    elif schema.get("additionalProperties") is True:
        made["x-kubernetes-preserve-unknown-fields"] = True
    else:
        raise NotStructural(f"{path}: an object of which nothing is known")
    return made


def _resolved(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    """Without its reference; what stands beside the reference wins."""
    while "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        schema = definitions[name] | beside
    return schema
