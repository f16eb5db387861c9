"""Did the engine keep to the resident bytes that it was told? Measured against asked."""

from __future__ import annotations

from estiba_agent.engines.wire import EngineState
from estiba_scheduler.quantities import format_bytes

TOLERANCE_SHARE = 0.02


def shortfall(asked_bytes: int, state: EngineState) -> str | None:
    """A sentence when asked and achieved resident bytes differ by more than one layer and 2 % of the weights."""
    footprint = state.footprint
    if footprint is None:
        return None
    asked = min(max(asked_bytes, footprint.fixed_bytes), footprint.weight_bytes)
    tolerance = max(max(footprint.layer_bytes, default=0), int(TOLERANCE_SHARE * footprint.weight_bytes))
    difference = abs(state.resident_bytes - asked)
    if difference <= tolerance:
        return None
    return (
        f"{format_bytes(asked)} of weights were asked for on the device and {format_bytes(state.resident_bytes)} are "
        f"there: {format_bytes(difference)} apart, and {format_bytes(tolerance)} would be the rounding of one layer"
    )
