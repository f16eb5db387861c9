"""Where a deployment could be brought up: a start on a free device, or a wake where it sleeps."""

from __future__ import annotations

from dataclasses import dataclass

from ..domain import Device, Instance, InstanceState, Rung
from ..prediction import wake_s
from .allotment import Item, item_for
from .cluster import rung_of
from .draft import Draft
from .filters import usable
from .standing import Standing


@dataclass(frozen=True, slots=True)
class Candidate:
    """One place, and the instance that sleeps there, if any."""

    device: Device
    instance: Instance | None
    item: Item
    serve_s: float  # predicted seconds until it serves, once there is room

    @property
    def own(self) -> frozenset[str]:
        """What it holds itself is not in its own way."""
        return frozenset({self.instance.id}) if self.instance else frozenset()


@dataclass(frozen=True, slots=True)
class Search:
    candidates: tuple[Candidate, ...]
    objections: dict[str, str]
    settling: Instance | None = None  # it is just going to sleep; a wake has to wait for that


def search(draft: Draft, standing: Standing) -> Search:
    devices, objections = usable(draft, standing)
    found, settling = [], None
    for device in devices:
        sleeper = next((i for i in standing.sleepers if i.spec.device == device.uuid), None)
        if sleeper is not None and not _can_wake(sleeper):
            settling = sleeper
            objections[device.uuid] = f"it is still going to sleep ({sleeper.state})"
            continue
        item = item_for(draft.cluster, draft.ledger, standing, device, draft.rivals(device))
        profile = draft.profile(standing, device.uuid)
        if item is None or profile is None:
            objections[device.uuid] = "its policies allow no residency at all"
            continue
        serve = wake_s(profile, rung_of(sleeper) if sleeper else Rung.COLD)
        if sleeper is not None and not sleeper.settled:
            serve = 0.0  # it has not gone to sleep yet
        found.append(Candidate(device, sleeper, item, serve))
    return Search(tuple(found), objections, settling)


def _can_wake(sleeper: Instance) -> bool:
    """Asleep, or not yet gone to sleep: a request revives what still drains."""
    return sleeper.settled or sleeper.state in (InstanceState.READY, InstanceState.DRAINING)
