"""Names, scopes, columns and subresources of our resources. Their schemas come from the types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.config import JsonDict

from ..api.deployment_status import DeploymentStatus
from ..api.model_deployment import LABEL, LONGEST_NAME, ModelDeployment
from ..api.model_instance import ModelInstance
from ..api.model_profile import ModelProfile
from ..api.resource import rule
from .structural import Schema, structural

GROUP = "estiba.dev"
VERSION = "v1alpha1"


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of ours, as a CustomResourceDefinition wants it."""

    kind: type[BaseModel]
    plural: str
    short: str
    columns: tuple[dict[str, Any], ...]
    namespaced: bool = True
    status: type[BaseModel] | None = None
    """Where the type itself doesn't read its status."""
    subresources: dict[str, Any] | None = None
    selectable: tuple[str, ...] = ()
    rules: tuple[JsonDict, ...] = ()
    immutable: tuple[str, ...] = ()
    """Fields of the spec that never change once they are set."""


def column(name: str, path: str, description: str, kind: str = "string", wide: bool = False) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "type": kind, "jsonPath": path, "description": description}
    return made | ({"priority": 1} if wide else {})


AGE = column("Age", ".metadata.creationTimestamp", "Since it was created.", "date")
READY = '.status.conditions[?(@.type=="Ready")].status'
NAMES = rule(
    f"self.metadata.name.size() <= {LONGEST_NAME} && self.metadata.name.matches('^{LABEL.pattern}$')",
    f"write a name of at most {LONGEST_NAME} lower-case letters, digits and '-': clients call the model by it",
)

RESOURCES = (
    Resource(
        kind=ModelDeployment,
        plural="modeldeployments",
        short="emd",
        status=DeploymentStatus,
        subresources={
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas.max",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        rules=(NAMES,),
        columns=(
            column("Model", ".spec.model.uri", "Which weights."),
            column("Ready", READY, "Whether it serves."),
            column("State", ".status.state", "Of its foremost instance."),
            column("GPU", ".status.device", "Where its foremost instance is."),
            column("Resident", ".status.resident", "Share of its weights on the device."),
            column("TPOT", ".status.tpot", "Time per token."),
            column("Priority", ".spec.priority", "Higher yields later.", "integer"),
            AGE,
            column("Reason", ".status.reason", "Why it stands so.", wide=True),
            column("Wake", ".status.wake", "Predicted time to serve from where it is.", wide=True),
            column("URL", ".status.url", "OpenAI base URL.", wide=True),
        ),
    ),
    Resource(
        kind=ModelInstance,
        plural="modelinstances",
        short="emi",
        subresources={"status": {}},
        selectable=(".spec.node", ".spec.deployment"),
        immutable=("deployment", "model", "engine", "node", "device"),
        columns=(
            column("Deployment", ".spec.deployment", "Whose instance it is."),
            column("Node", ".spec.node", "Where it is."),
            column("Device", ".spec.device", "Where it is."),
            column("State", ".status.state", "What it is now."),
            column("Resident", ".status.residentPercent", "Share of its weights on the device, in percent.", "integer"),
            column("Wake", ".status.wakeSeconds", "Predicted seconds to serve from here.", "number"),
            AGE,
            column("Reason", ".status.reason", "Why it is so.", wide=True),
            column("URL", ".status.url", "OpenAI endpoint.", wide=True),
        ),
    ),
    Resource(
        kind=ModelProfile,
        plural="modelprofiles",
        short="emp",
        namespaced=False,
        columns=(
            column("Digest", ".spec.of.digest", "Digest of the model's contents."),
            column("Dtype", ".spec.of.dtype", "What the weights are served in."),
            column("Engine", ".spec.of.engine", "Which engine."),
            column("Product", ".spec.of.product", "Which kind of device."),
            column("Weights", ".spec.weightBytes", "Bytes of all weights.", "integer"),
            column("Measured", ".spec.measuredAt", "When; empty: estimated.", "date"),
            AGE,
        ),
    ),
)


def custom_resource_definitions() -> dict[str, dict[str, Any]]:
    """By plural name, in the order in which they are to be applied."""
    return {resource.plural: _definition(resource) for resource in RESOURCES}


def _definition(resource: Resource) -> dict[str, Any]:
    kind = resource.kind.__name__
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _schema(resource)},
        "additionalPrinterColumns": list(resource.columns),
    }
    if resource.subresources is not None:
        version["subresources"] = resource.subresources
    if resource.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in resource.selectable]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": resource.plural,
                "singular": kind.lower(),
                "shortNames": [resource.short],
                "categories": ["estiba"],
            },
            "versions": [version],
        },
    }


def _schema(resource: Resource) -> Schema:
    """What the API server checks: apiVersion, kind and metadata are its own."""
    schema = structural(resource.kind)
    properties = schema["properties"]
    for name in ("apiVersion", "kind"):
        properties[name] = {"type": "string", "description": properties[name]["description"]}
    properties["metadata"] = {"type": "object"}
    if resource.status is not None:
        properties["status"] = structural(resource.status)
    if "conditions" in properties.get("status", {}).get("properties", {}):
        conditions = properties["status"]["properties"]["conditions"]
        conditions |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    for name in resource.immutable:
        fixed = rule("self == oldSelf", f"{name} of an instance never changes; make a new one")
        field = properties["spec"]["properties"][name]
        field["x-kubernetes-validations"] = [*field.get("x-kubernetes-validations", []), fixed]
    if resource.rules:
        schema["x-kubernetes-validations"] = list(resource.rules)
    schema["required"] = [name for name in schema["required"] if name == "spec"]
    return schema
