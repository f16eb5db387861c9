"""How an instance may be put away: the rungs that its policy and its engine allow, and where they lead."""

from __future__ import annotations

from dataclasses import dataclass

from ..domain import Deployment, ModelProfile, Rung
from ..prediction import asleep_device_bytes, asleep_host_bytes, unload_s, wake_s

LADDER = (Rung.SLEEP1, Rung.SLEEP2, Rung.COLD)
LOWEST_RUNGS = {"none": 0, "sleep1": 1, "sleep2": 2, "cold": 3}
"""Values of `policies.lowest_rung`, and how many rungs of the ladder each allows."""


@dataclass(frozen=True, slots=True)
class PutAway:
    """One way for an instance to yield: what it still holds, and what bringing it back costs."""

    rung: Rung
    device_bytes: int
    host_bytes: int
    unload_s: float
    wake_s: float

    @property
    def level(self) -> int | None:
        """Sleep level; None for an eviction."""
        return {Rung.SLEEP1: 1, Rung.SLEEP2: 2}.get(self.rung)

    @property
    def switch_s(self) -> float:
        return self.unload_s + self.wake_s

    @property
    def words(self) -> str:
        return {Rung.SLEEP1: "asleep level 1", Rung.SLEEP2: "asleep level 2", Rung.COLD: "evicted"}[self.rung]


def allowed(deployment: Deployment, profile: ModelProfile) -> tuple[Rung, ...]:
    """Rungs to choose from, cheapest to come back from first. Sleep needs an engine that was seen to do it."""
    depth = LOWEST_RUNGS.get(deployment.policies.lowest_rung, 0)
    return tuple(r for r in LADDER[:depth] if r is Rung.COLD or profile.rung(r) is not None)


def put_away(profile: ModelProfile, rung: Rung) -> PutAway:
    return PutAway(
        rung=rung,
        device_bytes=asleep_device_bytes(profile.footprint, rung),
        host_bytes=asleep_host_bytes(profile.footprint, rung),
        unload_s=unload_s(profile, rung),
        wake_s=wake_s(profile, rung),
    )
