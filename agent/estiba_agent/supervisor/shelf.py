"""Records of instances on disk: `<state>/e/<instance>/record.json`."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from pydantic import ValidationError

from .process import write_atomically
from .record import InstanceRecord

log = logging.getLogger(__name__)


class Shelf:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def directory(self, instance: str) -> Path:
        return self._directory / instance

    def keep(self, record: InstanceRecord) -> None:
        """Raises OSError."""
        directory = self.directory(record.spec.id)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(directory / "record.json", record.model_dump_json(indent=1))

    def drop(self, instance: str) -> None:
        shutil.rmtree(self.directory(instance), ignore_errors=True)

    def read(self) -> list[InstanceRecord]:
        """All records that can be read. One that can't be is set aside, and said."""
        records = []
        for file in sorted(self._directory.glob("*/record.json")):
            try:
                record = InstanceRecord.model_validate_json(file.read_bytes())
                if record.spec.id != file.parent.name:
                    raise ValueError(f"it is about {record.spec.id}")
            except (OSError, ValidationError, ValueError) as error:
                aside = file.with_name("record.bad")
                log.error("%s can't be read and is set aside as %s: %s", file, aside.name, error)
                file.replace(aside)
                continue
            records.append(record)
        return records
