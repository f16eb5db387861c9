"""Weighted isotonic regression by pooling adjacent violators."""

from __future__ import annotations

from collections.abc import Sequence


def nondecreasing(values: Sequence[float], weights: Sequence[float]) -> tuple[float, ...]:
    """The nondecreasing sequence nearest to `values` in weighted least squares. Weights are positive."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, length
    for value, weight in zip(values, weights, strict=True):
        mean, total, length = value, weight, 1
        while pools and pools[-1][0] > mean:
            left_mean, left_weight, left_length = pools.pop()
            mean = (left_mean * left_weight + mean * total) / (left_weight + total)
            total += left_weight
            length += left_length
        pools.append((mean, total, length))
    return tuple(mean for mean, _, length in pools for _ in range(length))
