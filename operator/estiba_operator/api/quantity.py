"""Amounts of memory as Kubernetes writes them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from estiba_scheduler.quantities import parse_bytes


def _plain(count: int) -> str:
    """Exact, with the largest binary unit that divides it."""
    for unit, factor in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if count and count % factor == 0:
            return f"{count // factor}{unit}"
    return str(count)


PATTERN = r"^[0-9]+(\.[0-9]+)?(([KkMGT]i?)?[Bb]?)$"
"""What the API server takes. Files may also be written with a space before the unit."""

Bytes = Annotated[
    int,
    BeforeValidator(parse_bytes),
    PlainSerializer(_plain, return_type=str),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": PATTERN}),
]
"""A number of bytes: `700MiB`, `1.5Gi`, `24G` or a plain integer."""
