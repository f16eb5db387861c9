"""How much is measured: a quick look, or a full profile with points that check it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """Seconds and counts. A knot's decode steps fill about `knot_s`, within `least_steps` and `most_steps`."""

    residencies: int = 5
    """On the first, even grid."""
    refined: int = 0
    """Further residencies, put where the curve bends."""
    rounds: int = 1
    """Times that every residency is visited: what disturbs the machine for a while then hits not one knot alone."""
    again: int = 0
    """Further visits to residencies whose steps were spread too far: something disturbed them."""
    held_out: int = 0
    """Residencies that are measured to check the prediction, and kept out of the fit."""
    knot_s: float = 0.6
    least_steps: int = 4
    most_steps: int = 8
    warmup: int = 1
    sleep1_repetitions: int = 1
    sleep2_repetitions: int = 1
    """Of putting to sleep and waking."""
    bare_wakes: bool = False
    """One more wake without its canary, which tells moving bytes from everything else."""
    starts: int = 1
    batch: int = 4
    context_tokens: int = 16
    long_context_tokens: int = 128


QUICK = Effort(least_steps=3, sleep1_repetitions=2)
FULL = Effort(
    refined=3,
    rounds=2,
    again=3,
    held_out=3,
    least_steps=3,
    knot_s=0.7,
    most_steps=10,
    sleep1_repetitions=3,
    sleep2_repetitions=2,
    bare_wakes=True,
    starts=2,
    batch=8,
    long_context_tokens=256,
)
