"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..state_dir import default_state_dir

State = Annotated[
    Path,
    typer.Option("--state", help="State directory of the `estiba up` meant.", default_factory=default_state_dir),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Files = Annotated[
    list[Path] | None,
    typer.Option("--file", "-f", help="YAML of ModelDeployments, a folder of them, or - for stdin. May be repeated."),
]
