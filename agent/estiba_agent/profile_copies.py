"""The agent's own copies of profiles: `<state>/profiles/<hash of the key>.json`. A store may lose its data."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from pydantic import ValidationError

from estiba_scheduler.domain import ModelProfile

from .supervisor.process import write_atomically

log = logging.getLogger(__name__)


class ProfileCopies:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._profiles: dict[str, ModelProfile] = {}
        for file in sorted(directory.glob("*.json")):
            try:
                profile = ModelProfile.model_validate_json(file.read_bytes())
            except (OSError, ValidationError) as error:
                aside = file.with_suffix(".bad")
                log.error("the profile %s can't be read and is set aside as %s: %s", file, aside.name, error)
                file.replace(aside)
                continue
            self._profiles[str(profile.key)] = profile

    def keep(self, profile: ModelProfile) -> None:
        """Raises OSError; the profile is known all the same."""
        key = str(profile.key)
        self._profiles[key] = profile
        name = hashlib.sha256(key.encode()).hexdigest()[:16]
        write_atomically(self._directory / f"{name}.json", profile.model_dump_json(indent=1))

    def all(self) -> list[ModelProfile]:
        return [self._profiles[key] for key in sorted(self._profiles)]
