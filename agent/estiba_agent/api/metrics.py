"""The metrics API on loopback: Prometheus text, the same facts as JSON, and whether the agent is well."""

from __future__ import annotations

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from estiba_scheduler.domain import ModelProfile, Node

from .bodies import CommandRefused, InstanceView
from .exposition import exposition
from .facts import Facts
from .refusals import answer_in_kind

STALLED_S = 10.0
"""A supervisor that has not done its round for so long hangs."""


def metrics_app(facts: Facts) -> FastAPI:
    app = FastAPI(
        title="Estiba agent",
        description="What one node's agent sees: devices, instances, profiles.",
        docs_url=None,
        redoc_url=None,
    )
    answer_in_kind(app)

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Prometheus text format."""
        return Response(exposition(facts), media_type=CONTENT_TYPE_LATEST)

    @app.get("/v1/devices")
    async def devices() -> Node:
        """The node: devices, host links, host memory."""
        return _known(facts.node())

    @app.get("/v1/instances")
    async def instances() -> list[InstanceView]:
        return facts.instances()

    @app.get("/v1/profiles")
    async def profiles() -> list[ModelProfile]:
        """Profiles that this agent measured."""
        return facts.profiles()

    @app.get("/healthz")
    async def healthz() -> JSONResponse:
        """200 while the supervisor does its rounds."""
        age = facts.pulse_age_s()
        return JSONResponse({"ok": age < STALLED_S, "pulse_age_s": age}, 200 if age < STALLED_S else 503)

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        """200 once devices are read and earlier engines taken over. Without the store it is ready all the same."""
        ready = facts.node() is not None
        return JSONResponse({"ready": ready, "store_reachable": facts.store_reachable}, 200 if ready else 503)

    return app


def _known(node: Node | None) -> Node:
    if node is None:
        raise CommandRefused(503, "Starting", "the devices have not been read yet; try again in a second")
    return node
