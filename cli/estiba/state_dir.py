"""Where one `estiba up` keeps its things, and where other commands find it."""

from __future__ import annotations

import os
from pathlib import Path

ENVIRONMENT = "ESTIBA_STATE"


def default_state_dir() -> Path:
    """`$ESTIBA_STATE`, else `estiba` in the user's state directory."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        return Path(named)
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "estiba"


def cache_dir() -> Path:
    """Converted models and measured profiles, shared by all state directories of this user."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "estiba"
