from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kubernetes import client, config

from estiba_operator.crds import custom_resource_definitions
from tests.controlplane.control_plane import ControlPlane, given_kubeconfig
from tests.waiting import until

from .cluster import Cluster

DEADLINE_S = 30.0


@pytest.fixture(scope="session")
def kubeconfig() -> Iterator[Path]:
    """Of a lent cluster, or of an API server of our own."""
    lent = given_kubeconfig()
    if lent is not None:
        yield lent
        return
    plane = ControlPlane()
    try:
        yield plane.start().kubeconfig
    finally:
        plane.stop()


@pytest.fixture(scope="session")
def cluster(kubeconfig: Path) -> Iterator[Cluster]:
    """With our definitions installed, and none of them left behind."""
    api = config.new_client_from_config_dict(yaml.safe_load(kubeconfig.read_text()))
    definitions = client.ApiextensionsV1Api(api)
    for definition in custom_resource_definitions().values():
        definitions.create_custom_resource_definition(definition)
    try:
        for definition in custom_resource_definitions().values():
            name = definition["metadata"]["name"]
            until(lambda name=name: established(definitions, name), DEADLINE_S, f"{name} is established")
        yield Cluster(api)
    finally:
        for definition in custom_resource_definitions().values():
            definitions.delete_custom_resource_definition(definition["metadata"]["name"])
        api.close()


def established(definitions: client.ApiextensionsV1Api, name: str) -> bool:
    seen = definitions.read_custom_resource_definition(name)
    conditions = {c.type: c.status for c in seen.status.conditions or []} if seen.status else {}
    assert conditions.get("NonStructuralSchema") != "True", seen.status.conditions
    return conditions.get("Established") == "True"


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """One of its own for each test."""
    name = f"t-{uuid.uuid4().hex[:10]}"
    core = client.CoreV1Api(cluster.api)
    core.create_namespace({"metadata": {"name": name}})
    yield name
    cluster.clear(name)
    core.delete_namespace(name)
