"""Measured profiles of this machine, kept between runs: `~/.cache/estiba/profiles`, one file per profile key."""

from __future__ import annotations

import hashlib
import logging
import platform
import shutil
from pathlib import Path

from pydantic import ValidationError

from estiba_agent.supervisor.process import write_atomically
from estiba_scheduler.domain import ModelProfile

log = logging.getLogger(__name__)


class ProfileCache:
    """What was measured on another machine (a home directory on a network) is not used here."""

    def __init__(self, directory: Path, node: str | None = None) -> None:
        self._directory = directory
        self._node = node or platform.node() or "localhost"

    def keep(self, profile: ModelProfile) -> None:
        """A cache that can't be written is said, and costs a measurement later."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            write_atomically(self._directory / self._name(profile), profile.model_dump_json(indent=1))
        except OSError as error:
            log.warning("the profile of %s can't be kept in %s: %s", profile.key, self._directory, error)

    def seed(self, directory: Path) -> int:
        """Copy the profiles of this machine to where its agent looks for its own; those there are kept. How many."""
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        count = 0
        for file in sorted(self._directory.glob("*.json")):
            try:
                profile = ModelProfile.model_validate_json(file.read_bytes())
            except (OSError, ValidationError) as error:
                log.warning("%s is not a profile of this version and is left out: %s", file, str(error).splitlines()[0])
                continue
            if profile.measured_on == self._node and not (directory / self._name(profile)).exists():
                shutil.copyfile(file, directory / self._name(profile))
                count += 1
        return count

    def _name(self, profile: ModelProfile) -> str:
        return f"{hashlib.sha256(str(profile.key).encode()).hexdigest()[:16]}.json"
