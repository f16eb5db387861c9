"""The story of one instance: what happened, what was done about it; bounded, printable, and fit to be replayed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime

from .events import EngineStateSeen, Event, SpecWanted
from .instructions import Call, Instruction, Keep, Report

ENTRIES = 200


@dataclass(frozen=True, slots=True)
class Entry:
    at: float
    event: Event
    instructions: tuple[Instruction, ...]


class Story:
    """The last entries of one instance."""

    def __init__(self, entries: int = ENTRIES) -> None:
        self._entries: deque[Entry] = deque(maxlen=entries)

    def add(self, at: float, event: Event, instructions: Sequence[Instruction]) -> None:
        self._entries.append(Entry(at, event, tuple(instructions)))

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def lines(self) -> list[str]:
        return [_line(entry) for entry in self._entries]


def _line(entry: Entry) -> str:
    when = datetime.fromtimestamp(entry.at, UTC).strftime("%H:%M:%S.%f")[:-3]
    done = "; ".join(_instruction(i) for i in entry.instructions if not isinstance(i, Keep))
    return f"{when} {_event(entry.event)}" + (f"  ->  {done}" if done else "")


def _event(event: Event) -> str:
    name = type(event).__name__
    if isinstance(event, SpecWanted):
        spec = event.spec
        return f"{name} {spec.desired} generation={spec.generation} budget_bytes={spec.budget_bytes}"
    if isinstance(event, EngineStateSeen):
        state = event.state
        return f"{name} {state.phase} resident_bytes={state.resident_bytes} running={state.running}"
    shown = [
        f"{f.name}={getattr(event, f.name)!r}"
        for f in fields(event)
        if f.name not in ("instance", "state", "log_tail", "devices", "record")
    ]
    return " ".join([name, *shown])


def _instruction(instruction: Instruction) -> str:
    if isinstance(instruction, Report):
        status = instruction.status
        return f"Report {status.state} ({status.reason}: {status.message}) settled={status.settled_generation}"
    if isinstance(instruction, Call):
        return f"Call {instruction.kind} #{instruction.number}"
    return type(instruction).__name__
