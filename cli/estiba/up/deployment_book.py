"""What is to be served: kept in a file, so that `up` goes on with it after a restart."""

from __future__ import annotations

import logging
from pathlib import Path

from pydantic import Field, ValidationError

from estiba_agent.api.bodies import FactsAnswer
from estiba_agent.supervisor.process import write_atomically
from estiba_scheduler.domain import Deployment, Value

log = logging.getLogger(__name__)


class Entry(Value):
    """A deployment, and what its model's files told when they were last read. `facts` None: they could not be read."""

    deployment: Deployment
    facts: FactsAnswer | None = None


class Book(Value):
    version: int = 1
    entries: tuple[Entry, ...] = Field(default=())


class DeploymentBook:
    """By namespace/name. A file that can't be read is set aside with a word in the log, never overwritten."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._entries: dict[str, Entry] = {}
        try:
            book = Book.model_validate_json(file.read_bytes())
            self._entries = {entry.deployment.id: entry for entry in book.entries}
        except FileNotFoundError:
            pass
        except (OSError, ValidationError) as error:
            aside = file.with_suffix(".unreadable")
            file.replace(aside)
            log.error("%s can't be read, it is kept as %s; apply your files again. (%s)", file, aside.name, error)

    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries[name] for name in sorted(self._entries))

    def deployments(self) -> tuple[Deployment, ...]:
        return tuple(entry.deployment for entry in self.entries())

    def get(self, name: str) -> Entry | None:
        """By namespace/name, or by name alone in the default namespace or where it is the only one of that name."""
        if name in self._entries:
            return self._entries[name]
        if f"default/{name}" in self._entries:
            return self._entries[f"default/{name}"]
        named = [entry for entry in self._entries.values() if entry.deployment.name == name]
        return named[0] if len(named) == 1 else None

    def put(self, entries: list[Entry]) -> None:
        """All of them. Raises OSError when they could not be kept; then nothing has changed."""
        self._keep(self._entries | {entry.deployment.id: entry for entry in entries})

    def delete(self, names: list[str]) -> None:
        self._keep({name: entry for name, entry in self._entries.items() if name not in names})

    def _keep(self, entries: dict[str, Entry]) -> None:
        book = Book(entries=tuple(entries[name] for name in sorted(entries)))
        write_atomically(self._file, book.model_dump_json(indent=1))
        self._entries = entries
