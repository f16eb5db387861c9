"""What was decided about a deployment, kept for people."""

from __future__ import annotations

from pydantic import Field

from ..domain import Reason, Value


class Decision(Value):
    at: float = Field(description="seconds since the epoch")
    deployment: str = Field(description="namespace/name")
    instance: str | None = None
    kind: str = Field(description="an ActionKind, or Verdict for why nothing was done")
    reason: Reason
    message: str = Field(description="a sentence, with the numbers that decided")
    numbers: dict[str, float] = Field(default_factory=dict)
