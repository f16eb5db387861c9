"""One generation request inside the engine, and the events by which its answer comes back.

Free of torch, so that the HTTP faces can answer while the runtime is still being imported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum


class FinishReason(StrEnum):
    """As OpenAI names them."""

    STOP = "stop"
    LENGTH = "length"


class RejectionCode(StrEnum):
    """Why a request got no answer; the `code` of the OpenAI error. All but the last three hand the request back."""

    LOADING = "engine_loading"
    DRAINING = "engine_draining"
    ASLEEP = "engine_asleep"
    FAILED = "engine_failed"
    STOPPING = "engine_stopping"
    QUEUE_FULL = "engine_queue_full"
    CONTEXT_LENGTH = "context_length_exceeded"
    INTERNAL = "internal_error"

    @property
    def handed_back(self) -> bool:
        """The request never began to answer, and may be sent to another engine or held and sent again."""
        return self not in (RejectionCode.QUEUE_FULL, RejectionCode.CONTEXT_LENGTH, RejectionCode.INTERNAL)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is picked. `temperature` 0 is greedy; `top_k` 0 is no limit."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A validated request: token ids in, at most `max_tokens` tokens out.

    `max_tokens` None means: as many as the context and the KV budget allow. `streaming` says whether a client sees
    text as soon as it is there; it decides what can be handed back when the engine is drained.
    """

    id: str
    prompt: tuple[int, ...]
    max_tokens: int | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    streaming: bool = False


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of the answer (never empty)."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is complete."""

    reason: FinishReason
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """There will be no (more) answer. After a `TextDelta` the client has seen a part of it."""

    code: RejectionCode
    message: str


Event = TextDelta | Finished | Rejected
Emit = Callable[[Event], None]
"""Takes an event from the engine's thread to whoever waits for it; must not block and must not raise."""
