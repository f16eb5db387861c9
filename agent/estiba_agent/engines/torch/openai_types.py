"""The OpenAI documents that the engine reads: as much of them as it serves.

Unknown fields are ignored, as OpenAI does. Known fields that would change the answer and aren't served are refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

MAX_STOPS = 16
MAX_MESSAGES = 4096
MAX_BIASES = 1024


class StreamOptions(BaseModel):
    include_usage: bool = False


class GenerationBody(BaseModel):
    """What both generation calls share. `top_k` and `ignore_eos` are extensions that other servers have as well."""

    model_config = ConfigDict(extra="ignore")

    model: str
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    logit_bias: dict[int, Annotated[float, Field(ge=-100, le=100)]] | None = Field(default=None, max_length=MAX_BIASES)
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    ignore_eos: bool = False

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @model_validator(mode="after")
    def _served(self) -> Self:
        if self.n not in (None, 1):
            raise ValueError(f"n={self.n}: only one choice is served per request (n=1); send the request n times")
        if len(self.stops) > MAX_STOPS or any(not stop or len(stop) > 1024 for stop in self.stops):
            raise ValueError(f"stop: at most {MAX_STOPS} stop strings of 1 to 1024 characters are served")
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options: only allowed when stream is true")
        return self


class Message(BaseModel):
    """One turn. `content` is text, or a list of text parts, which are joined."""

    model_config = ConfigDict(extra="ignore")

    role: str = Field(max_length=64)
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(str(part["text"]) for part in self.content or ())

    @model_validator(mode="after")
    def _is_text(self) -> Self:
        if isinstance(self.content, list):
            for part in self.content:
                if part.get("type") != "text" or not isinstance(part.get("text"), str):
                    raise ValueError(f"content part of type {part.get('type')!r}: only text is served")
        return self


class ChatBody(GenerationBody):
    messages: list[Message] = Field(min_length=1, max_length=MAX_MESSAGES)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool | None = None
    tools: list[Any] | None = None
    response_format: dict[str, Any] | None = None

    @property
    def limit(self) -> int | None:
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @model_validator(mode="after")
    def _chat_served(self) -> Self:
        if self.logprobs:
            raise ValueError("logprobs: not served by this engine")
        if self.tools:
            raise ValueError("tools: not served by this engine")
        if self.response_format and self.response_format.get("type", "text") != "text":
            raise ValueError(f"response_format of type {self.response_format.get('type')!r}: only text is served")
        return self


class CompletionBody(GenerationBody):
    """`prompt` is text or token ids, or a list with one of them."""

    prompt: str | list[int] | list[str] | list[list[int]]
    logprobs: int | None = None
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None

    @property
    def limit(self) -> int | None:
        return self.max_tokens

    @property
    def one_prompt(self) -> str | list[int]:
        """The one prompt, text or token ids."""
        if isinstance(self.prompt, list) and self.prompt and not isinstance(self.prompt[0], int):
            return self.prompt[0]
        return self.prompt  # type: ignore[return-value]

    @model_validator(mode="after")
    def _completion_served(self) -> Self:
        if isinstance(self.prompt, list) and len(self.prompt) > 1 and not isinstance(self.prompt[0], int):
            raise ValueError(f"prompt: {len(self.prompt)} prompts in one request; send them one by one")
        if self.prompt == [] or self.prompt == [[]]:
            raise ValueError("prompt: it is empty")
        if self.logprobs is not None:
            raise ValueError("logprobs: not served by this engine")
        if self.echo:
            raise ValueError("echo: not served by this engine")
        if self.best_of not in (None, 1):
            raise ValueError(f"best_of={self.best_of}: only 1 is served")
        if self.suffix:
            raise ValueError("suffix: not served by this engine")
        return self
