"""Token ids to text, one token at a time, correct for characters that are split over several tokens."""

from __future__ import annotations

from typing import Protocol

REPLACEMENT = "\ufffd"
LONGEST_HELD = 16
"""Tokens held back for an unfinished character. A character has at most 4 bytes, so that more are plain garbage."""


class Decoder(Protocol):
    """What is needed of a tokenizer."""

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool = ...) -> str: ...


class Detokenizer:
    """Decodes a short window twice and shows the difference: spaces and merges come out as in the whole text.

    The window starts at a token before the new ones, because decoders treat the first token of a text
    differently (they strip its leading space).
    """

    def __init__(self, tokenizer: Decoder) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._context = 0  # the window's start
        self._shown = 0  # tokens before this one are shown

    def feed(self, token: int) -> str:
        """Take one token; return the text that is complete with it (perhaps none)."""
        self._ids.append(token)
        text = self._new_text()
        if text.endswith(REPLACEMENT) and len(self._ids) - self._shown < LONGEST_HELD:
            return ""
        if text:
            self._context, self._shown = self._shown, len(self._ids)
        return text

    def flush(self) -> str:
        """The rest, with replacement characters where a character was never finished."""
        text = self._new_text()
        self._context = self._shown = len(self._ids)
        return text

    def _new_text(self) -> str:
        before = self._decode(self._ids[self._context : self._shown])
        return self._decode(self._ids[self._context :])[len(before) :]

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=True) if ids else ""
