"""Talks to the agent over its command socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError

from estiba_agent.api.bodies import FactsAnswer, JobStarted, JobView, NodeView
from estiba_scheduler.domain import InstanceSpec, InstanceStatus, ModelSource

V = TypeVar("V")

FACTS_TIMEOUT_S = 900.0
"""A model may be converted, or made, before it can be described."""


class AgentUnreachable(Exception):
    """The agent does not answer, or not in a way that is understood."""


class AgentRefused(Exception):
    """The agent says no: HTTP status, a stable reason, a sentence that says what to do."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


class AgentClient:
    """Every call raises AgentRefused or AgentUnreachable."""

    def __init__(self, socket: Path, timeout_s: float = 5.0) -> None:
        self._socket = socket
        transport = httpx.AsyncHTTPTransport(uds=str(socket))
        self._client = httpx.AsyncClient(transport=transport, base_url="http://agent", timeout=timeout_s)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def observed(self) -> NodeView:
        return _read(TypeAdapter(NodeView), await self._ask("GET", "/v1/observed"))

    async def want(self, spec: InstanceSpec) -> InstanceStatus:
        answer = await self._ask("PUT", f"/v1/instances/{spec.id}", json=spec.model_dump(mode="json"))
        return _read(TypeAdapter(InstanceStatus), answer)

    async def forget(self, instance: str) -> None:
        await self._ask("DELETE", f"/v1/instances/{instance}")

    async def model_facts(self, model: ModelSource) -> FactsAnswer:
        body = {"model": model.model_dump(mode="json")}
        answer = await self._ask("POST", "/v1/models/facts", json=body, timeout=FACTS_TIMEOUT_S)
        return _read(TypeAdapter(FactsAnswer), answer)

    async def start_profile(self, deployment: str, model: ModelSource, device: str, quick: bool) -> str:
        body = {
            "deployment": deployment,
            "model": model.model_dump(mode="json"),
            "device": device,
            "quick": quick,
        }
        answer = await self._ask("POST", "/v1/profiles", json=body, timeout=FACTS_TIMEOUT_S)
        return _read(TypeAdapter(JobStarted), answer).job

    async def job(self, job: str) -> JobView:
        return _read(TypeAdapter(JobView), await self._ask("GET", f"/v1/profiles/jobs/{job}"))

    async def cancel_job(self, job: str) -> JobView:
        return _read(TypeAdapter(JobView), await self._ask("DELETE", f"/v1/profiles/jobs/{job}", timeout=60.0))

    async def shut_down(self) -> None:
        """It drains and stops every engine, then ends."""
        await self._ask("POST", "/v1/shutdown")

    async def _ask(self, method: str, path: str, **more: Any) -> bytes:
        try:
            response = await self._client.request(method, path, **more)
        except httpx.HTTPError as error:
            raise AgentUnreachable(
                f"the agent on {self._socket} does not answer: {error or type(error).__name__}"
            ) from error
        if response.is_success:
            return response.content
        raise _no(response)


def _no(response: httpx.Response) -> AgentRefused | AgentUnreachable:
    try:
        said = response.json()["error"]
        return AgentRefused(response.status_code, str(said["reason"]), str(said["message"]))
    except (ValueError, KeyError, TypeError):
        return AgentUnreachable(f"the agent answered {response.status_code}: {response.text[:300]}")


def _read(kind: TypeAdapter[V], content: bytes) -> V:
    try:
        return kind.validate_json(content)
    except ValidationError as error:
        raise AgentUnreachable(f"the agent's answer can't be read: {error.errors()[0]['msg']}") from error
