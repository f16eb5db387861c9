"""The fit held against residencies that it has not seen."""

from __future__ import annotations

from collections.abc import Iterable

from estiba_scheduler.domain import ModelProfile
from estiba_scheduler.prediction import DecodeCurve

from .assembly import knots
from .records import Stepped
from .result import Validation


def validate(profile: ModelProfile, records: Iterable[Stepped]) -> tuple[Validation, ...]:
    """One for each residency that was held out, the most resident first."""
    curve, weights = DecodeCurve(profile), profile.footprint.weight_bytes
    found = []
    for knot in knots((r for r in records if r.held_out), profile.footprint):
        predicted = curve.predict(round(knot.resident_fraction * weights), knot.batch).tpot_s
        found.append(
            Validation(
                resident_fraction=knot.resident_fraction,
                predicted_s=predicted,
                measured_s=knot.tpot_s,
                error=abs(predicted - knot.tpot_s) / knot.tpot_s,
            )
        )
    return tuple(found)
