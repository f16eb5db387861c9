"""What was measured, kept as it comes: one JSON line each, so that a measurement that broke off goes on from there."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from estiba_scheduler.domain import Footprint, ProfileKey, Rung, Value

from ..engines.wire import Measurement

log = logging.getLogger(__name__)

FILE = "measurements.jsonl"
FINISHED = "measurements.last.jsonl"
"""What a finished profile rests on, kept for a look."""
MAX_AGE_S = 24 * 3600.0
"""The machine may be another by then."""


class Started(Value):
    kind: Literal["started"] = "started"
    started_s: float
    footprint: Footprint
    resident_bytes: int
    process_host_bytes: int = 0


class Stopped(Value):
    kind: Literal["stopped"] = "stopped"
    seconds: float


class Stepped(Value):
    """Decode steps at one residency, batch and context."""

    kind: Literal["stepped"] = "stepped"
    asked_bytes: int
    round: int
    held_out: bool = Field(default=False, description="measured to check the fit, and no part of it")
    measurement: Measurement
    device_bytes: int
    host_bytes: int
    kv_bytes: int


class Refused(Value):
    """The engine would not go to this residency, or not measure there."""

    kind: Literal["refused"] = "refused"
    asked_bytes: int
    batch: int
    context_tokens: int
    achieved_fraction: float
    reason: str
    message: str


class PutAway(Value):
    """Put to sleep from full residency, and woken to it."""

    kind: Literal["put_away"] = "put_away"
    rung: Rung
    repetition: int
    bare: bool = Field(default=False, description="woken without the canary")
    unload_s: float
    wake_s: float
    resident_bytes: int
    device_bytes: int = Field(description="held asleep")
    host_bytes: int = Field(description="held asleep")
    process_host_bytes: int = 0


class Unfit(Value):
    """The engine does not do this rung, or comes back from it wrong."""

    kind: Literal["unfit"] = "unfit"
    rung: Rung
    message: str


Record = Annotated[Started | Stopped | Stepped | Refused | PutAway | Unfit, Field(discriminator="kind")]
R = TypeVar("R", Started, Stopped, Stepped, Refused, PutAway, Unfit)


class Line(Value):
    key: str
    at: float = Field(description="seconds since the epoch")
    record: Record


_LINE: TypeAdapter[Line] = TypeAdapter(Line)


class RecordBook:
    """The records of one profile key in a directory. Lines of other keys, torn and stale ones are passed over."""

    def __init__(self, directory: Path, key: ProfileKey, now: float) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = directory / FILE
        self._key = str(key)
        self._records: list[Record] = list(self._read(now))
        self.found = len(self._records)

    def all(self, kind: type[R]) -> tuple[R, ...]:
        """In the order in which they were measured."""
        return tuple(record for record in self._records if isinstance(record, kind))

    def add(self, record: Record, now: float) -> None:
        """Raises OSError where the disk is full or gone; the record is known all the same."""
        self._records.append(record)
        line = Line(key=self._key, at=now, record=record).model_dump_json()
        with self._file.open("a+b") as file:
            if file.seek(0, 2) and not self._ends_whole():
                file.write(b"\n")
            file.write(line.encode() + b"\n")

    def finish(self) -> None:
        """Nothing is missing: the next profile of this key is measured anew."""
        if self._file.exists():
            self._file.replace(self._file.with_name(FINISHED))

    def _ends_whole(self) -> bool:
        with self._file.open("rb") as file:
            file.seek(-1, 2)
            return file.read(1) == b"\n"

    def _read(self, now: float) -> Iterator[Record]:
        if not self._file.exists():
            return
        for number, text in enumerate(self._file.read_bytes().splitlines(), start=1):
            try:
                line = _LINE.validate_json(text)
            except ValidationError as error:
                why = "torn" if _is_torn(text) else str(error).splitlines()[-2].strip()
                log.warning("line %d of %s is passed over: %s", number, self._file, why)
                continue
            if line.key == self._key and now - line.at < MAX_AGE_S:
                yield line.record


def _is_torn(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return True
    return False
