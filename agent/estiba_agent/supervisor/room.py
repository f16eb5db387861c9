"""Room on devices: who may start or grow, whether memory came back, and who did not give it back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from estiba_scheduler.domain import Reason
from estiba_scheduler.quantities import format_bytes

from .events import DeviceSeen
from .supervised import Note, Supervised

UNACCOUNTED_SHARE = 0.02
UNACCOUNTED_BYTES = 64 * 1024 * 1024
"""Devices that can't tell whose memory it is: this much beyond what is known to be held is no leak."""


@dataclass(slots=True)
class Guest:
    """An engine outside supervision, of a profiling job."""

    owner: str
    device: str
    budget_bytes: int
    admitted: bool = False
    loading: bool = True


@dataclass(frozen=True, slots=True)
class Room:
    """One device, with all that holds or may take its memory."""

    seen: DeviceSeen | None
    seen_at: float
    uuid: str
    instances: tuple[Supervised, ...]
    guests: tuple[Guest, ...]
    leak: str = ""

    @classmethod
    def on(
        cls,
        uuid: str,
        seen: DeviceSeen | None,
        seen_at: float,
        instances: Iterable[Supervised],
        guests: Iterable[Guest],
        leak: str = "",
    ) -> Room:
        mine = tuple(i for i in instances if i.spec.device == uuid)
        return cls(seen, seen_at, uuid, mine, tuple(g for g in guests if g.device == uuid and g.admitted), leak)

    def obstacle_to_start(self, budget_bytes: int, owner: str) -> Note | None:
        """Why an engine with this budget can't be started now; None when it can."""
        if self.seen is None:
            return Note(Reason.NO_DEVICE, f"device {self.uuid} is not among the devices of this agent")
        if self.leak:
            return Note(Reason.DEVICE_MEMORY_LEAKED, f"nothing is started on {self.uuid}: {self.leak}")
        starting = [i.id for i in self.instances if i.loading and i.id != owner]
        starting += [g.owner for g in self.guests if g.loading and g.owner != owner]
        if starting:
            return Note(Reason.STARTED, f"waits for its turn: {starting[0]} is starting on {self.uuid}")
        leaving = [i.id for i in self.instances if i.left_at is not None and i.id != owner]
        if leaving:
            return Note(Reason.WAITING_FOR_ROOM, f"waits for the device memory of {leaving[0]} to come back")
        return self.lacking(budget_bytes, owner)

    def lacking(self, budget_bytes: int, owner: str, held_bytes: int = 0) -> Note | None:
        """What `budget_bytes` (of which `held_bytes` are held already) is short of; None when there is room."""
        if self.seen is None:
            return None
        claims = {i.id: i.claimed_bytes for i in self.instances if i.id != owner and i.claimed_bytes}
        claims |= {g.owner: g.budget_bytes for g in self.guests if g.owner != owner}
        room = self.seen.usable_bytes - sum(claims.values())
        free = self.seen.free_bytes
        if free is not None:
            room = min(room, free + held_bytes)
        if budget_bytes <= room:
            return None
        others = ", ".join(f"{name} {format_bytes(n)}" for name, n in sorted(claims.items()))
        return Note(
            Reason.INSUFFICIENT_MEMORY,
            f"{format_bytes(budget_bytes)} are wanted on {self.uuid} and there is room for "
            f"{format_bytes(max(0, room))}: {format_bytes(budget_bytes - room)} short. "
            f"Usable {format_bytes(self.seen.usable_bytes)}"
            + (f", free {format_bytes(free)}" if free is not None else "")
            + (f", foreign {format_bytes(self.seen.foreign_bytes)}" if self.seen.foreign_bytes else "")
            + f"; set aside for others: {others or 'nothing'}",
        )

    def still_held_by(self, owner: str) -> int:
        """Bytes that an ended engine still holds, as far as the device can tell; 0 when they came back."""
        seen = self.seen
        if seen is None:
            return 0
        if seen.holders is not None:
            return seen.holders.get(owner, 0)
        if seen.free_bytes is None:
            return 0
        known = sum(i.held_bytes for i in self.instances if i.id != owner) + sum(g.budget_bytes for g in self.guests)
        unaccounted = seen.memory_bytes - seen.free_bytes - seen.foreign_bytes - known
        return unaccounted if unaccounted > max(UNACCOUNTED_BYTES, UNACCOUNTED_SHARE * seen.memory_bytes) else 0
