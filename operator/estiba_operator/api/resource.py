"""What every part of a resource is: camelCase outside, snake_case inside, immutable, strict about unknown fields."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict


def rule(expression: str, message: str, **more: str) -> JsonDict:
    """A CEL rule, for `json_schema_extra` of a type: the API server says `message` where it does not hold."""
    return {"rule": expression, "message": message, **more}


class Part(BaseModel):
    """The base of all types of `estiba.dev/v1alpha1`."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, validate_by_alias=True, validate_by_name=False
    )
