"""What the supervisor needs of this machine's devices."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .events import DeviceSeen


@dataclass(frozen=True, slots=True)
class Place:
    """Where an engine runs, as its launch file describes it. `ledger_dir` and `link_file`: cpu devices only."""

    device: str
    kind: str
    memory_bytes: int
    ledger_dir: Path | None = None
    link_file: Path | None = None
    link_bytes_per_s: float | None = None
    compute_threads: int = 1


class Hardware(Protocol):
    def look(self) -> tuple[DeviceSeen, ...]:
        """Read all devices now. May block; called in a thread."""
        ...

    def place(self, device: str) -> Place:
        """Raises KeyError for a device that is not here."""
        ...
