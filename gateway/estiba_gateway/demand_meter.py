"""What the gateway has seen of the demand for each model: rates, lengths, last request. Time is passed in."""

from __future__ import annotations

import math
from dataclasses import dataclass

from estiba_scheduler.domain import Demand

RATE_MEMORY_S = 60.0
WORTH_TELLING_S = 600.0
"""So long after its last request a model's demand is still reported: its rate is nothing by then."""
LEAST_WEIGHT = 0.05
"""Of one request in a mean of lengths: about the last twenty count."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, as an engine reported them for one request."""

    prompt_tokens: int
    output_tokens: int


@dataclass(slots=True)
class _Seen:
    rate_per_s: float = 0.0
    rate_at: float = 0.0
    requests: int = 0
    last_request_at: float | None = None
    usages: int = 0
    prompt_mean: float | None = None
    output_mean: float | None = None

    def rate(self, now: float) -> float:
        return self.rate_per_s * math.exp(-max(0.0, now - self.rate_at) / RATE_MEMORY_S)


class DemandMeter:
    """By deployment id. `now` is in seconds since the epoch."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def arrived(self, deployment: str, now: float) -> None:
        seen = self._seen.setdefault(deployment, _Seen())
        seen.rate_per_s = seen.rate(now) + 1 / RATE_MEMORY_S
        seen.rate_at = now
        seen.requests += 1
        seen.last_request_at = now

    def used(self, deployment: str, usage: Usage) -> None:
        seen = self._seen.setdefault(deployment, _Seen())
        seen.usages += 1
        weight = max(1 / seen.usages, LEAST_WEIGHT)
        seen.prompt_mean = _moved(seen.prompt_mean, usage.prompt_tokens, weight)
        seen.output_mean = _moved(seen.output_mean, usage.output_tokens, weight)

    def worth_telling(self, deployment: str, now: float) -> bool:
        seen = self._seen.get(deployment)
        return seen is not None and seen.last_request_at is not None and now - seen.last_request_at < WORTH_TELLING_S

    def demand(
        self, deployment: str, queued: int, oldest_queued_at: float | None, in_flight: int, now: float
    ) -> Demand:
        seen = self._seen.get(deployment) or _Seen()
        return Demand(
            deployment=deployment,
            arrival_rate_per_s=seen.rate(now),
            queued=queued,
            oldest_queued_at=oldest_queued_at,
            in_flight=in_flight,
            last_request_at=seen.last_request_at,
            requests_total=seen.requests,
            prompt_tokens_mean=seen.prompt_mean,
            output_tokens_mean=seen.output_mean,
            observed_at=now,
        )

    def keep_only(self, deployments: set[str]) -> None:
        """Forget deployments that are no more."""
        self._seen = {id: seen for id, seen in self._seen.items() if id in deployments}


def _moved(mean: float | None, value: float, weight: float) -> float:
    return float(value) if mean is None else mean + weight * (value - mean)
