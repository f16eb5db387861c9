"""`estiba status`, `top` and `explain`: what runs, and why."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from estiba_scheduler.domain import Snapshot
from estiba_scheduler.store import Decision

from ..exits import CommandError
from ..status_report import decision_table, status_tables
from ..terminal import console as wide
from ..up.status_view import StatusView
from ..up_client import UpClient
from .options import AsJson, State

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=200, help="How many decisions, the last ones.")]


def status(
    state: State,
    json: AsJson = False,
    snapshot: Annotated[
        bool, typer.Option("--snapshot", help="Print all that decisions rest on, for `estiba plan -f`.")
    ] = False,
) -> None:
    """Models and instances: state, device, resident share, TPOT, wake cost, priority, and why."""
    with UpClient(state) as up:
        if snapshot:
            seen = Snapshot.model_validate(up.get("/v1/snapshot"))
            typer.echo(seen.model_dump_json(indent=1))
            return
        view = StatusView.model_validate(up.get("/v1/status"))
    if json:
        typer.echo(view.model_dump_json(indent=1))
    else:
        wide().print(status_tables(view))


def top(
    state: State,
    interval_s: Annotated[float, typer.Option("--interval", min=0.2, max=60, help="Seconds between looks.")] = 1.0,
    count: Annotated[int, typer.Option("--count", min=0, help="Looks before it ends; 0: until Ctrl-C.")] = 0,
) -> None:
    """The same as `status`, live."""
    # A live screen has the terminal's own width; lines that wrap would tear it.
    console = Console() if sys.stdout.isatty() else wide()
    with UpClient(state) as up, Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
        looks = 0
        while True:
            view = StatusView.model_validate(up.get("/v1/status"))
            if console.is_terminal:
                live.update(status_tables(view), refresh=True)
            else:
                console.print(datetime.fromtimestamp(view.at).strftime("%H:%M:%S"), status_tables(view))
            looks += 1
            if count and looks >= count:
                return
            time.sleep(interval_s)


def explain(
    name: Annotated[str, typer.Argument(help="A model: NAME or NAMESPACE/NAME.")],
    state: State,
    limit: Limit = 20,
    json: AsJson = False,
) -> None:
    """The last decisions about a model, with the numbers that decided."""
    with UpClient(state) as up:
        answer = up.get("/v1/decisions", deployment=name, limit=limit)
    decisions = [Decision.model_validate(item) for item in answer["decisions"]]
    if json:
        for decision in decisions:
            typer.echo(decision.model_dump_json())
        return
    console = wide()
    for problem in answer["problems"]:
        console.print(f"problem: {problem}", style="bold red", markup=False)
    if not decisions:
        raise CommandError(f"nothing was decided about {name} yet, or the store lost it; see `estiba status`")
    console.print(decision_table(decisions))
    for decision in decisions:
        if decision.numbers:
            numbers = ", ".join(f"{key} {value:.4g}" for key, value in sorted(decision.numbers.items()))
            at = datetime.fromtimestamp(decision.at).strftime("%H:%M:%S")
            console.print(f"{at} {decision.kind}: {numbers}", markup=False, highlight=False)
