from __future__ import annotations

from pathlib import Path

import pytest

from .folders import a_model_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole model folder that a test may damage."""
    return a_model_folder(tmp_path)
