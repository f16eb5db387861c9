"""The command socket: what the decider and the `estiba` command ask of this agent (JSON over HTTP, unix socket).

Errors are `{"error": {"reason", "message"}}`. See `docs/reference/agent-api.md`.
"""

from __future__ import annotations

from typing import Protocol

from fastapi import FastAPI, Response

from estiba_scheduler.domain import InstanceSpec, InstanceStatus

from .bodies import (
    CommandRefused,
    FactsAnswer,
    FactsRequest,
    InstanceView,
    JobStarted,
    JobView,
    NodeView,
    ProfileRequest,
)
from .refusals import answer_in_kind


class Commands(Protocol):
    """Who carries the commands out. Each may raise CommandRefused."""

    async def want(self, spec: InstanceSpec) -> InstanceStatus: ...
    async def forget(self, instance: str) -> None: ...
    def instances(self) -> list[InstanceView]: ...
    async def observed(self) -> NodeView: ...
    async def model_facts(self, request: FactsRequest) -> FactsAnswer: ...
    async def profile(self, request: ProfileRequest) -> JobStarted: ...
    def job(self, job: str) -> JobView: ...
    async def cancel(self, job: str) -> JobView: ...
    def story(self, instance: str) -> list[str]: ...
    def shut_down(self) -> None: ...


def command_app(commands: Commands) -> FastAPI:
    app = FastAPI(title="Estiba agent: commands", docs_url=None, redoc_url=None)
    answer_in_kind(app)

    @app.put("/v1/instances/{instance}")
    async def want(instance: str, spec: InstanceSpec) -> InstanceStatus:
        if spec.id != instance:
            raise CommandRefused(422, "Invalid", f"the path names instance {instance}, the body {spec.id}")
        return await commands.want(spec)

    @app.get("/v1/instances")
    async def instances() -> list[InstanceView]:
        return commands.instances()

    @app.get("/v1/observed")
    async def observed() -> NodeView:
        """Instances and devices of the same moment; the devices are read for it."""
        return await commands.observed()

    @app.get("/v1/instances/{instance}/story")
    async def story(instance: str) -> list[str]:
        return commands.story(instance)

    @app.delete("/v1/instances/{instance}", status_code=204)
    async def forget(instance: str) -> Response:
        await commands.forget(instance)
        return Response(status_code=204)

    @app.post("/v1/models/facts")
    async def model_facts(request: FactsRequest) -> FactsAnswer:
        return await commands.model_facts(request)

    @app.post("/v1/profiles", status_code=202)
    async def profile(request: ProfileRequest) -> JobStarted:
        return await commands.profile(request)

    @app.get("/v1/profiles/jobs/{job}")
    async def job(job: str) -> JobView:
        return commands.job(job)

    @app.delete("/v1/profiles/jobs/{job}")
    async def cancel(job: str) -> JobView:
        return await commands.cancel(job)

    @app.post("/v1/shutdown", status_code=202)
    async def shut_down() -> dict[str, bool]:
        """Drain and stop every engine, then end."""
        commands.shut_down()
        return {"stopping": True}

    return app
