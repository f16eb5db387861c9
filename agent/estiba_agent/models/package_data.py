"""Model files that come inside a Python package, found without importing the package."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from .bad_model import BadModel


def packaged_file(package: str, name: str, uri: str) -> Path:
    """The file `name` in `package`'s folder. Raises BadModel when the package or the file is not there."""
    if not package.isidentifier():
        raise BadModel(uri, f"{package!r} is no package name; write package://PACKAGE/FILE")
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise BadModel(
            uri, f"the package {package} is not installed; install it with: pip install {package.replace('_', '-')}"
        )
    for folder in spec.submodule_search_locations:
        file = (Path(folder) / name).resolve()
        if file.is_relative_to(Path(folder).resolve()) and file.exists():
            return file
    raise BadModel(uri, f"the package {package} has no file {name}; look in {spec.submodule_search_locations[0]}")
