"""The `estiba` command. `main` is what the console script calls."""

from __future__ import annotations

import sys

import typer

from .commands import deployments, model, plan, profile, status, up
from .exits import CommandError

app = typer.Typer(
    name="estiba",
    help="Runs more LLMs than the GPUs can hold: measures what offloading and preemption cost, and decides by it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("up")(up.up)
app.command("status")(status.status)
app.command("top")(status.top)
app.command("explain")(status.explain)
app.command("apply")(deployments.apply)
app.command("delete")(deployments.delete)
app.command("profile")(profile.profile)
app.command("plan")(plan.plan_files)
app.add_typer(model.app, name="model")


def main() -> None:
    """Exit codes: 0 as asked, 1 it did not work, 2 what was given can't be used."""
    try:
        app()
    except CommandError as error:
        sys.stderr.write(f"estiba: {error}\n")
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
