"""Conditions, as every Kubernetes resource carries them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from .resource import Part


class Condition(Part):
    """One aspect of how an object is."""

    type: Annotated[str, StringConstraints(min_length=1, max_length=63)] = Field(description="Which aspect.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    observed_generation: int | None = Field(default=None, ge=0, description="Of the spec that this was said about.")
    last_transition_time: Annotated[str, StringConstraints(max_length=40)] = Field(
        description="When `status` last changed; RFC 3339."
    )
    reason: Annotated[str, StringConstraints(min_length=1, max_length=253)] = Field(
        description="A constant of docs/reference/reasons.md."
    )
    message: Annotated[str, StringConstraints(max_length=1024)] = Field(default="", description="The same for people.")
