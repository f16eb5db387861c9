"""What it costs to come back, and the times that follow from it: idle time, minimum residency, start deadline."""

from __future__ import annotations

from dataclasses import dataclass

from ..domain import ModelProfile, Provenance, Rung

HOLD_COST = 0.2
"""Seconds of other models' time that an idle model costs per second by holding its memory (an assumption)."""
SWITCH_SHARE = 0.1
"""Part of the time that switching may take."""
MINIMUM_IDLE_S = 2.0
MINIMUM_START_DEADLINE_S = 60.0
START_DEADLINE_FACTOR = 5.0

_DEFAULT_FIXED_S = {Rung.SLEEP1: 0.2, Rung.SLEEP2: 0.5, Rung.COLD: 10.0}
_DEFAULT_BYTES_PER_S = {Rung.SLEEP1: 4e9, Rung.SLEEP2: 1e9, Rung.COLD: 0.5e9}
_DEFAULT_UNLOAD_BYTES_PER_S = 4e9


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds, how far off they may be, and what they rest on."""

    seconds: float
    spread_s: float
    provenance: Provenance


def transfer_s(fixed_s: float, moved_bytes: float, bytes_per_s: float | None) -> float:
    """`fixed + bytes / bandwidth`; a bandwidth of None moves in no time."""
    return fixed_s + (moved_bytes / bytes_per_s if bytes_per_s else 0.0)


def wake(profile: ModelProfile, rung: Rung) -> Cost:
    """Seconds from the decision to serving again: as measured on this rung, else from its bytes."""
    known = profile.rung(rung)
    weights = profile.footprint.weight_bytes
    if known is not None:
        if known.samples > 0 and known.seconds_s > 0:
            return Cost(known.seconds_s, known.spread_s, known.provenance)
        seconds = transfer_s(known.fixed_s, weights, known.bytes_per_s)
        return Cost(seconds, seconds / 2, known.provenance)
    seconds = transfer_s(_DEFAULT_FIXED_S[rung], weights, _DEFAULT_BYTES_PER_S[rung])
    return Cost(seconds, seconds / 2, Provenance.ESTIMATED)


def wake_s(profile: ModelProfile, rung: Rung) -> float:
    return wake(profile, rung).seconds


def unload_s(profile: ModelProfile, rung: Rung) -> float:
    """Seconds from drained to put away on this rung."""
    known = profile.rung(rung)
    if known is not None and known.samples > 0:
        return known.unload_s
    return profile.footprint.weight_bytes / _DEFAULT_UNLOAD_BYTES_PER_S if rung is Rung.SLEEP1 else 0.5


def switch_s(profile: ModelProfile, rung: Rung) -> float:
    """Seconds lost by putting it away on this rung and bringing it back."""
    return unload_s(profile, rung) + wake_s(profile, rung)


def idle_s(profile: ModelProfile, rung: Rung) -> float:
    """How long an idle model is kept before it is put away on this rung.

    Ski rental: hold until holding has cost as much as coming back would. Holding costs HOLD_COST seconds a second,
    coming back costs `switch_s`; whoever stops at that point never pays more than twice what foresight would pay.
    A ladder of half a second gives about three seconds, a cold load of a minute gives five minutes.
    """
    return max(MINIMUM_IDLE_S, switch_s(profile, rung) / HOLD_COST)


def quantum_s(profile: ModelProfile, rung: Rung) -> float:
    """Minimum residency after a switch, so that switching takes at most SWITCH_SHARE of the time.

    Models that take turns on one slot each stay `switch / share` seconds, so each round loses `share` of itself.
    """
    return switch_s(profile, rung) / SWITCH_SHARE


def start_deadline_s(profile: ModelProfile) -> float:
    """How long a start or a wake may take before it is called failed: five times the prediction, at least 60 s."""
    return max(MINIMUM_START_DEADLINE_S, START_DEADLINE_FACTOR * wake_s(profile, Rung.COLD))
