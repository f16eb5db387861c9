"""`estiba plan`: what would be decided, and why. Nothing is started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from estiba_scheduler.policies import by_name

from ..exits import UsageError
from ..plan_report import plan_as_json, render_plan
from ..plan_state import BadPlanState, load_plan_state
from ..terminal import console as wide
from .options import AsJson


def plan_files(
    file: Annotated[Path, typer.Option("--file", "-f", help="A state: what there is and what is asked for.")],
    policy: Annotated[str, typer.Option("--policy", help="estiba, lru or fit.")] = "estiba",
    as_json: AsJson = False,
) -> None:
    """What would be decided in the state that a file describes, and why. Starts nothing."""
    try:
        snapshot, now = load_plan_state(file)
    except BadPlanState as error:
        raise UsageError(str(error)) from error
    try:
        decide = by_name(policy)
    except ValueError as error:
        raise UsageError(str(error)) from error
    plan = decide(snapshot, now)
    if as_json:
        typer.echo(json.dumps(plan_as_json(plan), indent=1))
    else:
        render_plan(snapshot, plan, wide())
