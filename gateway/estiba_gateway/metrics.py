"""Prometheus series of a gateway, in base units. Label values are bounded: deployments that are there, and enums."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .engine_call import Why
from .outcome import Outcome

HOLD_BUCKETS_S = (0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300)
NO_MODEL = ""
"""Label of requests that name no model that is there."""


class GatewayMetrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._requests = Counter(
            "estiba_gateway_requests", "Requests by how they ended.", ("model", "outcome"), registry=self._registry
        )
        self._not_taken = Counter(
            "estiba_gateway_not_taken",
            "Times that an engine did not take a request, which was then held or sent elsewhere.",
            ("model", "why"),
            registry=self._registry,
        )
        self._held = Histogram(
            "estiba_gateway_hold_seconds",
            "How long requests were held, of those that were.",
            ("model",),
            buckets=HOLD_BUCKETS_S,
            registry=self._registry,
        )
        self._kicks = Counter(
            "estiba_gateway_kicks", "Times that the control loop was woken for held requests.", registry=self._registry
        )
        self._models: set[str] = set()

    def ended(self, model: str | None, outcome: Outcome, held_s: float) -> None:
        self._requests.labels(self._label(model), outcome.value).inc()
        if model is not None and held_s > 0:
            self._held.labels(self._label(model)).observe(held_s)

    def not_taken(self, model: str, why: Why) -> None:
        self._not_taken.labels(self._label(model), why.value).inc()

    def kicked(self) -> None:
        self._kicks.inc()

    def keep_only(self, models: Iterable[str]) -> None:
        """Forget series of deployments that are no more; what still ends of them counts without a name."""
        there = set(models)
        for gone in self._models - there:
            for outcome in Outcome:
                self._requests.remove(gone, outcome.value)
            for why in Why:
                self._not_taken.remove(gone, why.value)
            self._held.remove(gone)
        self._models = there

    def exposition(self, now: Callable[[], Iterable[Metric]]) -> bytes:
        """All series, with gauges that are read `now`."""
        reading = _Reading(now)
        self._registry.register(reading)
        try:
            return generate_latest(self._registry)
        finally:
            self._registry.unregister(reading)

    def _label(self, model: str | None) -> str:
        return model if model in self._models else NO_MODEL


class _Reading(Collector):
    def __init__(self, now: Callable[[], Iterable[Metric]]) -> None:
        self._now = now

    def collect(self) -> Iterable[Metric]:
        return self._now()


def gauge(name: str, text: str, values: dict[str, float]) -> GaugeMetricFamily:
    """One gauge by model."""
    family = GaugeMetricFamily(name, text, labels=("model",))
    for model, value in values.items():
        family.add_metric([model], value)
    return family
