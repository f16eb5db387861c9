"""First-order model of decoding while offloaded layers are streamed over the host link.

One decode step reads every weight once. What is not on the device is copied in while the layers before it
compute, so that a step takes `max(compute, streamed bytes / link share)` plus a measured overhead. Above the knee
the copies hide behind the compute and offloading is free; below it the step is linear in what is streamed.
"""

from __future__ import annotations


def streamed_bytes(weight_bytes: int, offloadable_bytes: int, resident_bytes: int) -> int:
    """Bytes copied over the link in one step. Only layers are streamed: the fixed weights never leave the device."""
    return min(max(0, weight_bytes - resident_bytes), offloadable_bytes)


def step_s(compute_s: float, streamed: float, link_share_bytes_per_s: float | None, overhead_s: float = 0.0) -> float:
    """Seconds of one decode step; a link share of None stands for one that is never the limit."""
    if streamed <= 0:
        return compute_s
    copy_s = streamed / link_share_bytes_per_s if link_share_bytes_per_s else 0.0
    return max(compute_s, copy_s) + overhead_s


def knee_fraction(compute_s: float, link_bytes_per_s: float, weight_bytes: int, fixed_bytes: int = 0) -> float:
    """Resident fraction above which streaming is hidden: `1 - compute * link / weights`, not below what is fixed."""
    return min(1.0, max(fixed_bytes / weight_bytes, 1.0 - compute_s * link_bytes_per_s / weight_bytes))


def break_even_intensity(flops_per_s: float, link_bytes_per_s: float) -> float:
    """FLOP per streamed byte at which copy and compute take equally long (both rates as achieved, not as on paper)."""
    return flops_per_s / link_bytes_per_s
