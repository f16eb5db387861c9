"""The base of every domain value: frozen, strict about unknown fields, hashable."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """An immutable value. Unknown fields are an error, so that two versions never misread each other."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_enum_values=False)
