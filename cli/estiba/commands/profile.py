"""`estiba profile`: measure a model, and show what was measured."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from estiba_agent.devices import parse_device
from estiba_scheduler.domain import ModelSource

from ..exits import UsageError
from ..measuring import Measured, measure_alone, measure_in_up
from ..state_dir import cache_dir
from ..terminal import console as wide
from ..up_client import UpClient, UpNotRunning
from .deployments import read_deployments
from .options import AsJson, Files, State

Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        help="Measure on a device of its own, for example cpu:memory=2GiB,link=1GiB/s. Without it: on the device of "
        "the running `estiba up`, or on cpu.",
    ),
]


def profile(
    model: Annotated[str, typer.Argument(help="A served model's NAME, or a URI or path of a model.")],
    state: State,
    device: Device = None,
    files: Files = None,
    dtype: Annotated[
        str, typer.Option("--dtype", help="auto, float32, bfloat16 or float16; for a URI or path.")
    ] = "auto",
    context: Annotated[int, typer.Option("--context", min=16, max=1_048_576, help="Tokens; for a URI or path.")] = 512,
    batch: Annotated[int, typer.Option("--batch", min=1, max=1024, help="Largest batch; for a URI or path.")] = 4,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer points and no validation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure how decoding slows as weights leave the device, and how long coming back takes.

    Interrupt it when you like: what was measured is kept, and the next call goes on from there.
    """
    console = wide(stderr=as_json)
    source = _source(model, files, dtype, context, batch)
    if device is None and source is None:
        with UpClient(state) as up:
            measured = measure_in_up(up, model, quick, console)
    else:
        request = device or "cpu"
        try:
            parse_device(request)
        except ValueError as error:
            raise UsageError(str(error)) from error
        if source is None:
            source = _served(state, model)
        measured = asyncio.run(measure_alone(source, request, quick, cache_dir(), console))
    _show(measured, as_json, console)


def _show(measured: Measured, as_json: bool, console: Console) -> None:
    if as_json:
        typer.echo(measured.model_dump_json(indent=1))
    else:
        from ..profile_report import render

        render(measured.profile, measured.validation, console, measured.lacks)


def _source(model: str, files: list[Path] | None, dtype: str, context: int, batch: int) -> ModelSource | None:
    """The model that the argument itself, or a file, describes; None: it is the name of a served one."""
    if files:
        named = [d for d in read_deployments(files) if model in (d.metadata.name, d.id)]
        if not named:
            raise UsageError(f"no ModelDeployment in these files is called {model}")
        return named[0].to_deployment().model
    if "://" in model:
        uri = model
    elif ("/" in model and Path(model).expanduser().exists()) or Path(model).suffix == ".gguf":
        uri = f"file://{Path(model).expanduser().absolute()}"
    else:
        return None
    return ModelSource(uri=uri, dtype=dtype, context_tokens=context, max_batch=batch)


def _served(state: Path, model: str) -> ModelSource:
    try:
        with UpClient(state) as up:
            return ModelSource.model_validate(up.get("/v1/model", name=model))
    except UpNotRunning as error:
        raise UsageError(
            f"{model} is neither a URI nor a path, and no `estiba up` is running that serves it; "
            "write for example package://..., file:///..., or name its file with -f"
        ) from error
