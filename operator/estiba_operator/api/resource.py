"""What every part of a resource is: camelCase outside, snake_case inside, immutable, strict about unknown fields."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Part(BaseModel):
    """The base of all types of `estiba.dev/v1alpha1`."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, validate_by_alias=True, validate_by_name=False
    )
