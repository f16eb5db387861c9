"""`estiba model`: models made on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from estiba_agent.models import BadModel, RandomModel, make_random
from estiba_scheduler.quantities import format_bytes

from ..exits import UsageError
from ..state_dir import cache_dir

app = typer.Typer(help="Models made on the spot.", no_args_is_help=True)


@app.callback()
def _models() -> None:
    """Models made on the spot."""


@app.command("make-random")
def make_random_model(
    config: Annotated[
        str,
        typer.Argument(help="ARCHITECTURE?field=value&..., for example 'qwen3?hidden=768&layers=8&heads=12&seed=0'."),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder in which the model's folder is made.")] = Path(),
) -> None:
    """Make a model with random weights: it writes no sense, but costs what a real one of its size costs."""
    uri = config if config.startswith("random://") else f"random://{config}"
    try:
        size = RandomModel.parse(uri).weight_bytes
        folder = make_random(uri, out.absolute(), cache_dir() / "models", lambda note: typer.echo(note, err=True))
    except BadModel as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(f"{out}: {error.strerror or error}; choose another --out") from error
    typer.echo(f"file://{folder}   ({format_bytes(size)} of random weights)")
