"""The gateway's paths: OpenAI's, and what people and Prometheus ask it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from estiba_scheduler.domain import Deployment

from .generation import Generation
from .metrics import GatewayMetrics, gauge
from .refusal import Code, Refusal
from .route_table import RouteTable
from .switchboard import Switchboard
from .table_watch import TableWatch

log = logging.getLogger(__name__)

STALLED_S = 10.0
"""A gateway that has not looked at its routes for so long hangs."""


class GatewayApi:
    def __init__(
        self,
        board: Switchboard,
        watch: TableWatch,
        metrics: GatewayMetrics,
        generation: Generation,
        clock: Callable[[], float],
    ) -> None:
        self._board = board
        self._watch = watch
        self._metrics = metrics
        self._generation = generation
        self._clock = clock

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self._generation, methods=["POST"]),
                Route("/v1/completions", self._generation, methods=["POST"]),
                Route("/v1/models", self._models, methods=["GET"]),
                Route("/v1/models/{name:path}", self._model, methods=["GET"]),
                Route("/healthz", self._healthz, methods=["GET"]),
                Route("/readyz", self._readyz, methods=["GET"]),
                Route("/metrics", self._exposition, methods=["GET"]),
            ],
            exception_handlers={Refusal: _refused, 404: _no_such_path, 405: _no_such_path, Exception: _broken},
        )

    async def _models(self, _: Request) -> Response:
        table = self._table()
        return JSONResponse({"object": "list", "data": [_card(table, d) for d in table.deployments.values()]})

    async def _model(self, request: Request) -> Response:
        return JSONResponse(_card(self._table(), self._board.find(request.path_params["name"])))

    async def _healthz(self, _: Request) -> Response:
        age = self._clock() - self._watch.pulse_at
        return JSONResponse({"ok": age < STALLED_S, "pulse_age_s": round(age, 3)}, 200 if age < STALLED_S else 503)

    async def _readyz(self, _: Request) -> Response:
        """200 once the table was read. With the store away it is ready all the same, on the last table."""
        read_at = self._watch.read_at
        facts = {
            "ready": read_at is not None,
            "store_reachable": self._watch.reachable,
            "table_age_s": None if read_at is None else round(self._clock() - read_at, 3),
        }
        return JSONResponse(facts, 200 if read_at is not None else 503)

    async def _exposition(self, _: Request) -> Response:
        return Response(self._metrics.exposition(self._gauges), media_type=CONTENT_TYPE_LATEST)

    def _gauges(self) -> Iterable[Metric]:
        models = self._board.table.deployments if self._board.table else {}
        held = {model: float(self._board.held(model)) for model in models}
        in_flight = {model: float(self._board.in_flight(model)) for model in models}
        yield gauge("estiba_gateway_held_requests", "Requests held now.", held)
        yield gauge("estiba_gateway_in_flight_requests", "Requests that engines work on now.", in_flight)
        held_bytes = float(self._board.held_bytes)
        yield GaugeMetricFamily("estiba_gateway_held_bytes", "Bodies of all requests held now.", value=held_bytes)
        reachable = float(self._watch.reachable)
        yield GaugeMetricFamily("estiba_gateway_store_reachable", "1 while the store answers.", value=reachable)
        if self._watch.read_at is not None:
            age = self._clock() - self._watch.read_at
            yield GaugeMetricFamily("estiba_gateway_table_age_seconds", "Since the table was last read.", value=age)

    def _table(self) -> RouteTable:
        """Raises Refusal as long as there is none."""
        if self._board.table is None:
            raise self._board.starting()
        return self._board.table


def _card(table: RouteTable, deployment: Deployment) -> dict[str, Any]:
    return {
        "id": table.public_name(deployment),
        "object": "model",
        "created": int(deployment.created_at),
        "owned_by": "estiba",
        "max_model_len": deployment.model.context_tokens,
        "deployment": deployment.id,
        "state": table.state_of(deployment.id).value,
        "problem": deployment.problem,
    }


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.response()


async def _no_such_path(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    message = f"{request.method} {request.url.path[:200]} is not served here"
    return Refusal(status, Code.NOT_FOUND, message).response()


async def _broken(request: Request, error: Exception) -> Response:
    log.exception("%s %s broke", request.method, request.url.path, exc_info=error)
    return Refusal(500, Code.INTERNAL, "internal error, see the gateway's log").response()
