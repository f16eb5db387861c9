"""A seeded sequence of chat requests for several models, and what is counted of its answers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles

from estiba.chat_probe import Answer
from estiba_scheduler.domain import Objectives

PROMPTS = (
    "What is the capital of France?",
    "Write a short poem about a harbour at night.",
    "Explain to a child why the sky is blue.",
    "List three things to take on a long walk.",
    "What is the difference between a ship and a boat?",
    "Tell me about the history of bread.",
)
WITHIN_BURST_S = 0.4
"""Mean time between the requests of one burst."""


@dataclass(frozen=True, slots=True)
class Share:
    """How much of the load one model gets: bursts per second (exponential gaps), and requests per burst on average."""

    bursts_per_s: float
    burst_size: float
    median_tokens: int


@dataclass(frozen=True, slots=True)
class Request:
    at_s: float
    model: str
    prompt: str
    max_tokens: int


def sequence(shares: Mapping[str, Share], seconds: float, seed: int) -> list[Request]:
    """Requests in order of time; the same for the same arguments, whatever serves them.

    Bursts, because people and programs ask in bursts: within one, requests follow each other quickly. Lengths are
    log-normal around their median, at least 4 tokens and at most 8 times the median.
    """
    found: list[Request] = []
    for model, share in sorted(shares.items()):
        draw = random.Random(f"{seed}/{model}")
        at = draw.expovariate(share.bursts_per_s)
        while at < seconds:
            moment = at
            size = 1
            while draw.random() < 1.0 - 1.0 / share.burst_size:
                size += 1
            for _ in range(size):
                tokens = round(share.median_tokens * draw.lognormvariate(0.0, 0.5))
                tokens = min(8 * share.median_tokens, max(4, tokens))
                if moment < seconds:
                    found.append(Request(moment, model, draw.choice(PROMPTS), tokens))
                moment += draw.expovariate(1.0 / WITHIN_BURST_S)
            at += draw.expovariate(share.bursts_per_s)
    return sorted(found, key=lambda r: (r.at_s, r.model))


def is_good(answer: Answer, objectives: Objectives) -> bool:
    """Answered, and both within its model's objectives."""
    if not answer.ok or answer.ttft_s is None or answer.ttft_s > objectives.ttft_s:
        return False
    return answer.tpot_s is None or answer.tpot_s <= objectives.tpot_s


def quantile(values: Sequence[float], share: float) -> float | None:
    """None of nothing; linear between neighbours."""
    if len(values) < 2:
        return values[0] if values else None
    return quantiles(values, n=100, method="inclusive")[min(98, max(0, round(share * 100) - 1))]
