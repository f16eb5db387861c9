"""Our resources on an API server, as a test reads and writes them."""

from __future__ import annotations

import json
import ssl
from typing import Any

import httpx
from kubernetes import client
from kubernetes.client.exceptions import ApiException

GROUP, VERSION = "estiba.dev", "v1alpha1"
DEPLOYMENTS, INSTANCES, PROFILES = "modeldeployments", "modelinstances", "modelprofiles"


class Refused(Exception):
    """The API server said no; `str()` is its message."""

    def __init__(self, error: ApiException) -> None:
        self.code = error.status
        body = json.loads(error.body) if error.body else {}
        super().__init__(body.get("message", str(error)))


class Cluster:
    """Every write raises Refused."""

    def __init__(self, api: client.ApiClient) -> None:
        self.api = api
        self._objects = client.CustomObjectsApi(api)

    def create(self, namespace: str, plural: str, document: dict[str, Any]) -> dict[str, Any]:
        try:
            return dict(
                self._objects.create_namespaced_custom_object(
                    GROUP, VERSION, namespace, plural, document, field_validation="Strict"
                )
            )
        except ApiException as error:
            raise Refused(error) from error

    def read(self, namespace: str, plural: str, name: str) -> dict[str, Any]:
        return dict(self._objects.get_namespaced_custom_object(GROUP, VERSION, namespace, plural, name))

    def replace(self, namespace: str, plural: str, document: dict[str, Any]) -> dict[str, Any]:
        try:
            name = document["metadata"]["name"]
            return dict(
                self._objects.replace_namespaced_custom_object(GROUP, VERSION, namespace, plural, name, document)
            )
        except ApiException as error:
            raise Refused(error) from error

    def write_status(self, namespace: str, plural: str, document: dict[str, Any]) -> dict[str, Any]:
        try:
            name = document["metadata"]["name"]
            return dict(
                self._objects.replace_namespaced_custom_object_status(GROUP, VERSION, namespace, plural, name, document)
            )
        except ApiException as error:
            raise Refused(error) from error

    def scale(self, namespace: str, name: str, replicas: int) -> None:
        body = {"spec": {"replicas": replicas}}
        self._objects.patch_namespaced_custom_object_scale(GROUP, VERSION, namespace, DEPLOYMENTS, name, body)

    def listed(self, namespace: str, plural: str, field_selector: str = "") -> list[str]:
        found = self._objects.list_namespaced_custom_object(
            GROUP, VERSION, namespace, plural, field_selector=field_selector
        )
        return sorted(item["metadata"]["name"] for item in found["items"])

    def table(self, namespace: str, plural: str) -> list[dict[str, Any]]:
        """As kubectl is given it: one mapping per object, by column."""
        settings = self.api.configuration
        context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
        if settings.cert_file:
            context.load_cert_chain(settings.cert_file, settings.key_file)
        headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        if token := settings.get_api_key_with_prefix("BearerToken", "authorization"):
            headers["Authorization"] = token
        url = f"{settings.host}/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{plural}"
        answer = httpx.get(url, headers=headers, verify=context, trust_env=False).raise_for_status().json()
        names = [column["name"] for column in answer["columnDefinitions"]]
        return [dict(zip(names, row["cells"], strict=True)) for row in answer["rows"]]

    def clear(self, namespace: str) -> None:
        for plural in (DEPLOYMENTS, INSTANCES):
            self._objects.delete_collection_namespaced_custom_object(GROUP, VERSION, namespace, plural)
