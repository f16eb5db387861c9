"""The demand of one deployment, as several gateways saw it, put together."""

from __future__ import annotations

from collections.abc import Iterable

from ..domain import Demand


def total_demand(parts: Iterable[Demand]) -> dict[str, Demand]:
    """By deployment; the order of `parts` makes no difference but for rounding."""
    by_deployment: dict[str, list[Demand]] = {}
    for part in parts:
        by_deployment.setdefault(part.deployment, []).append(part)
    return {deployment: _sum(seen) for deployment, seen in sorted(by_deployment.items())}


def _sum(seen: list[Demand]) -> Demand:
    if len(seen) == 1:
        return seen[0]
    return Demand(
        deployment=seen[0].deployment,
        arrival_rate_per_s=sum(d.arrival_rate_per_s for d in seen),
        queued=sum(d.queued for d in seen),
        oldest_queued_at=min((d.oldest_queued_at for d in seen if d.oldest_queued_at is not None), default=None),
        in_flight=sum(d.in_flight for d in seen),
        last_request_at=max((d.last_request_at for d in seen if d.last_request_at is not None), default=None),
        requests_total=sum(d.requests_total for d in seen),
        prompt_tokens_mean=_mean([(d.prompt_tokens_mean, d.requests_total) for d in seen]),
        output_tokens_mean=_mean([(d.output_tokens_mean, d.requests_total) for d in seen]),
        observed_at=max(d.observed_at for d in seen),
    )


def _mean(parts: list[tuple[float | None, int]]) -> float | None:
    """Weighted by requests."""
    known = [(mean, max(1, count)) for mean, count in parts if mean is not None]
    return sum(mean * count for mean, count in known) / sum(count for _, count in known) if known else None
