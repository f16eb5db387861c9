"""Whether a residency that was asked for is there: what the engine says is held against what was asked and counted."""

from __future__ import annotations

from estiba_scheduler.domain import Footprint
from estiba_scheduler.quantities import format_bytes

SHARE = 0.02
"""Part of all weights by which bytes may differ for rounding."""


def objection(
    footprint: Footprint, asked_bytes: int, achieved_bytes: int, device_bytes: int, kv_bytes: int
) -> str | None:
    """Why a point at this residency is not to be believed; None when it is.

    An engine keeps at most what it is asked for, in whole layers: up to one layer less is right. More than asked is
    never right, whatever the layers' size: half a layer more already means that a layer did not leave.
    """
    weights = footprint.weight_bytes
    layer = max(footprint.layer_bytes, default=0)
    rounding = SHARE * weights
    more = achieved_bytes - asked_bytes
    asked = f"asked for {asked_bytes / weights:.0%} resident ({format_bytes(asked_bytes)})"
    got = f"{achieved_bytes / weights:.0%} ({format_bytes(achieved_bytes)})"
    if more > (min(rounding, layer / 2) if layer else rounding):
        return f"{asked} and {got} stayed: the engine does not offload what it is told to"
    if -more > max(rounding, layer):
        return f"{asked} and got only {got}, which is more than a layer less"
    ring = footprint.stream_buffer_bytes if achieved_bytes < weights else 0
    expected = achieved_bytes + ring + kv_bytes + footprint.overhead_bytes
    if device_bytes > expected + max(rounding, layer / 2):
        return (
            f"{asked} and the engine says it is at {got}, but it holds {format_bytes(device_bytes)} on the device "
            f"where that makes at most {format_bytes(expected)}"
        )
    return None
