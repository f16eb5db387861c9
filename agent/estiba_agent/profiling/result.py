"""What profiling hands back."""

from __future__ import annotations

import asyncio

from pydantic import Field

from estiba_scheduler.domain import ModelProfile, Value


class Validation(Value):
    """A residency that was kept out of the fit: predicted and measured decode step."""

    resident_fraction: float
    predicted_s: float
    measured_s: float
    error: float = Field(description="|predicted - measured| / measured")


class ProfilingResult(Value):
    profile: ModelProfile
    validation: tuple[Validation, ...] = ()
    lacks: tuple[str, ...] = Field(default=(), description="what was not measured and why, a sentence each")


class ProfilingCancelled(asyncio.CancelledError):
    """`cancelled()` said so between two measurements. What was measured is kept."""
