"""`estiba apply` and `estiba delete`: what should be served."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from estiba_operator.api import BadDocuments, ModelDeployment, load_documents

from ..exits import UsageError
from ..up_client import UpClient
from .options import Files, State

APPLY_TIMEOUT_S = 900.0
"""A model may be converted, or made, before it is accepted."""


def read_deployments(files: list[Path] | None) -> list[ModelDeployment]:
    """All documents of all files. Raises UsageError naming everything that is wrong in any of them."""
    if not files:
        raise UsageError("nothing was given: name a file with -f, for example -f examples/three-models.yaml")
    read: list[ModelDeployment] = []
    wrong: list[str] = []
    for file in files:
        try:
            read += load_documents(file)
        except BadDocuments as error:
            wrong.append(str(error))
    names = [d.id for d in read]
    wrong += [f"{name} is given twice; remove one" for name in sorted({n for n in names if names.count(n) > 1})]
    if wrong:
        raise UsageError("\n".join([*wrong, "nothing was changed"]))
    return read


def apply(state: State, files: Files = None) -> None:
    """Serve the ModelDeployments of these files beside what is served already: all or, if one is wrong, none."""
    documents = [d.model_dump(mode="json", by_alias=True, exclude_none=True) for d in read_deployments(files)]
    with UpClient(state) as up:
        answer = up.post("/v1/apply", {"documents": documents}, timeout_s=APPLY_TIMEOUT_S)
    for result in answer["results"]:
        typer.echo(f"modeldeployment/{result['name']} {result['result']}")


def delete(
    state: State,
    names: Annotated[list[str] | None, typer.Argument(help="Models: NAME or NAMESPACE/NAME.")] = None,
    files: Files = None,
) -> None:
    """Stop serving these models, given by name or by the files that they were applied from."""
    wanted = list(names or []) + ([d.id for d in read_deployments(files)] if files else [])
    if not wanted:
        raise UsageError("name what to delete, or the file that it was applied from with -f")
    with UpClient(state) as up:
        answer = up.post("/v1/delete", {"names": wanted})
    for name in answer["deleted"]:
        typer.echo(f"modeldeployment/{name} deleted")
