"""What is wrong with a document, in words: the path, the value, and how to write it."""

from __future__ import annotations

import difflib
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from .model_deployment import ModelDeployment

LONGEST_VALUE = 60


def problems_of(error: ValidationError, kind: type[BaseModel] = ModelDeployment) -> list[str]:
    """One sentence per problem, in the document's own names."""
    return [_problem(item, kind) for item in error.errors(include_url=False)]


def _problem(item: Any, kind: type[BaseModel]) -> str:
    path = ".".join(str(part) for part in item["loc"]) or "the document"
    if item["type"] == "extra_forbidden":
        known = _fields_at(kind, item["loc"][:-1])
        close = difflib.get_close_matches(str(item["loc"][-1]), known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
        return f"{path}: there is no such field; {hint}"
    if item["type"] == "missing":
        return f"{path}: is missing"
    said = str(item["msg"]).removeprefix("Value error, ")
    if item["type"] == "value_error" and not item["loc"]:
        return said
    return f"{path}: {_shown(item['input'])}: {said[0].lower()}{said[1:]}"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "what is there"
    text = repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def _fields_at(kind: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """The names that may stand at this place of the document."""
    here: Any = kind
    for part in path:
        field = next((f for f in here.model_fields.values() if f.alias == part), None)
        if field is None:
            return []
        options = [field.annotation, *get_args(field.annotation)]
        here = next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)
        if here is None:
            return []
    return sorted(str(f.alias) for f in here.model_fields.values())
