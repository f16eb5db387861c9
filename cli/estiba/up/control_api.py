"""The control socket of `up`: what the other commands ask it. JSON over HTTP, on a unix socket of its user alone.

Errors are `{"error": {"reason", "message"}}`: 404 for an unknown name, 422 for what can't be used, 503 for what is
away.
"""

from __future__ import annotations

from typing import Any, Protocol

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

from estiba_agent.api.bodies import JobView
from estiba_agent.api.refusals import answer_in_kind
from estiba_scheduler.domain import ModelSource, Snapshot, Value
from estiba_scheduler.store import Decision

from .status_view import StatusView

MOST_DOCUMENTS = 256


class ApplyRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    documents: list[dict[str, Any]] = Field(min_length=1, max_length=MOST_DOCUMENTS)


class Applied(Value):
    name: str
    result: str = Field(description="created, configured or unchanged")


class ApplyAnswer(Value):
    results: tuple[Applied, ...]


class DeleteRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    names: list[str] = Field(min_length=1, max_length=MOST_DOCUMENTS)


class DeleteAnswer(Value):
    deleted: tuple[str, ...]


class DecisionsAnswer(Value):
    decisions: tuple[Decision, ...]
    problems: tuple[str, ...] = ()


class MeasureRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    quick: bool = False


class MeasureAnswer(Value):
    job: str


class UpCommands(Protocol):
    """Who carries them out. Each may raise CommandRefused."""

    def status(self) -> StatusView: ...
    def snapshot(self) -> Snapshot: ...
    async def decisions(self, deployment: str | None, limit: int) -> DecisionsAnswer: ...
    async def apply(self, documents: list[dict[str, Any]]) -> ApplyAnswer: ...
    async def delete(self, names: list[str]) -> DeleteAnswer: ...
    def model(self, name: str) -> ModelSource: ...
    async def measure(self, name: str, quick: bool) -> str: ...
    async def measuring(self, job: str) -> JobView: ...
    async def stop_measuring(self, job: str) -> JobView: ...


def control_app(up: UpCommands) -> FastAPI:
    app = FastAPI(title="estiba up: control", docs_url=None, redoc_url=None)
    answer_in_kind(app)

    @app.get("/v1/status")
    async def status() -> StatusView:
        return up.status()

    @app.get("/v1/snapshot")
    async def snapshot() -> Snapshot:
        return up.snapshot()

    @app.get("/v1/decisions")
    async def decisions(deployment: str | None = None, limit: int = 50) -> DecisionsAnswer:
        return await up.decisions(deployment, max(1, min(limit, 2000)))

    @app.post("/v1/apply")
    async def apply(request: ApplyRequest) -> ApplyAnswer:
        return await up.apply(request.documents)

    @app.post("/v1/delete")
    async def delete(request: DeleteRequest) -> DeleteAnswer:
        return await up.delete(request.names)

    @app.get("/v1/model")
    async def model(name: str) -> ModelSource:
        return up.model(name)

    @app.post("/v1/profile", status_code=202)
    async def measure(request: MeasureRequest) -> MeasureAnswer:
        return MeasureAnswer(job=await up.measure(request.name, request.quick))

    @app.get("/v1/profile/{job}")
    async def measuring(job: str) -> JobView:
        return await up.measuring(job)

    @app.delete("/v1/profile/{job}")
    async def stop_measuring(job: str) -> JobView:
        return await up.stop_measuring(job)

    return app
