"""`python -m estiba_operator.crds [FOLDER]` writes the CustomResourceDefinitions there; without it, into `crds/`."""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from .definitions import GROUP, custom_resource_definitions

HEADER = "# Made from the types in operator/estiba_operator/api by `python -m estiba_operator.crds`; edit those.\n"
FOLDER = Path(__file__).resolve().parents[3] / "crds"


def texts() -> dict[str, str]:
    """By file name."""
    return {
        f"{GROUP}_{plural}.yaml": HEADER + yaml.safe_dump(definition, sort_keys=False, width=120, allow_unicode=True)
        for plural, definition in custom_resource_definitions().items()
    }


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]) if arguments else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts().items():
        (folder / name).write_text(text)
        sys.stdout.write(f"{folder / name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
