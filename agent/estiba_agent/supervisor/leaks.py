"""Device memory that ended engines did not give back. Nothing is started on such a device until it is back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from estiba_scheduler.quantities import format_bytes, format_seconds

from .room import Room


@dataclass(frozen=True, slots=True)
class Leak:
    device: str
    owner: str
    bytes: int
    waited_s: float


class Leaks:
    def __init__(self) -> None:
        self._leaks: dict[tuple[str, str], Leak] = {}

    def add(self, device: str, owner: str, n_bytes: int, waited_s: float) -> None:
        self._leaks[device, owner] = Leak(device, owner, n_bytes, waited_s)

    def check(self, room_of: Callable[[str], Room]) -> None:
        """The devices were read anew: what has come back is no leak any more."""
        for key, leak in list(self._leaks.items()):
            if room_of(leak.device).still_held_by(leak.owner) == 0:
                del self._leaks[key]

    def sentence(self, device: str) -> str:
        """Empty where the device holds nothing but what it should."""
        leaks = [leak for leak in self._leaks.values() if leak.device == device]
        if not leaks:
            return ""
        held = "; ".join(
            f"{format_bytes(leak.bytes)} of {leak.owner} did not come back within {format_seconds(leak.waited_s)} "
            "after its process ended"
            for leak in leaks
        )
        return f"{held}. Find the process that holds it, or reset the device"

    def sentences(self) -> dict[str, str]:
        return {device: self.sentence(device) for device in sorted({leak.device for leak in self._leaks.values()})}
