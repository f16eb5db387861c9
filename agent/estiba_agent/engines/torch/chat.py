"""From messages or a prompt to token ids, off the event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .engine_loop import ServedModel
from .openai_errors import OpenAIError
from .openai_types import Message

CHARACTERS_PER_TOKEN = 256
"""No tokenizer makes fewer tokens than this of ordinary text: longer prompts are refused before they cost time."""


class Prompts:
    """Makes prompts for one engine. One thread does all of it: fast tokenizers aren't safe in two at once."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenise")

    async def of_chat(self, model: ServedModel, messages: list[Message]) -> tuple[int, ...]:
        """Token ids of the conversation in the model's template. Raises OpenAIError 400 where it has none."""
        return await self._in_thread(_chat_tokens, model, messages)

    async def of_text(self, model: ServedModel, text: str) -> tuple[int, ...]:
        """Token ids of plain text. Raises OpenAIError 400 when it is empty or far too long."""
        return await self._in_thread(_text_tokens, model, text)

    async def _in_thread(self, work: Any, *arguments: Any) -> tuple[int, ...]:
        tokens: tuple[int, ...] = await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)
        return tokens


def checked(model: ServedModel, tokens: list[int]) -> tuple[int, ...]:
    """Token ids that a caller sent. Raises OpenAIError 400 for ids that the model doesn't have."""
    for token in tokens:
        if not 0 <= token < model.vocabulary:
            raise OpenAIError(
                400, f"prompt: token id {token} is not in the vocabulary (0 to {model.vocabulary - 1})", param="prompt"
            )
    return tuple(tokens)


def _chat_tokens(model: ServedModel, messages: list[Message]) -> tuple[int, ...]:
    if not getattr(model.tokenizer, "chat_template", None):
        raise OpenAIError(
            400, "this model has no chat template; send the text to /v1/completions", "no_chat_template", "messages"
        )
    # `developer` is OpenAI's newer word for `system`, which is what templates know
    turns = [{"role": "system" if m.role == "developer" else m.role, "content": m.text} for m in messages]
    _refuse_huge(model, sum(len(turn["content"]) for turn in turns), "messages")
    try:
        text = model.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    except Exception as error:
        raise OpenAIError(
            400, f"the model's chat template refuses these messages: {error}", "chat_template_failed", "messages"
        ) from error
    return _encode(model, text, "messages", special=False)


def _text_tokens(model: ServedModel, text: str) -> tuple[int, ...]:
    _refuse_huge(model, len(text), "prompt")
    return _encode(model, text, "prompt", special=True)


def _encode(model: ServedModel, text: str, param: str, *, special: bool) -> tuple[int, ...]:
    tokens = tuple(model.tokenizer(text, add_special_tokens=special)["input_ids"])
    if not tokens:
        start = getattr(model.tokenizer, "bos_token_id", None)
        if start is None:
            raise OpenAIError(400, f"{param}: no tokens in it, and the model has no token to start from", param=param)
        tokens = (int(start),)
    beyond = next((token for token in tokens if token >= model.vocabulary), None)
    if beyond is not None:
        raise OpenAIError(
            400, f"{param}: the tokenizer gives token {beyond}, which the model does not have", param=param
        )
    return tokens


def _refuse_huge(model: ServedModel, characters: int, param: str) -> None:
    if characters > model.context_tokens * CHARACTERS_PER_TOKEN:
        raise OpenAIError(
            400,
            f"{characters} characters can't fit into the context of {model.context_tokens} tokens",
            "context_length_exceeded",
            param,
        )
