"""A short greedy generation that must come out the same for as long as the process lives.

Computed at the first Ready and compared after every wake: weights that came back wrong show here, before a user
sees them.
"""

from __future__ import annotations

from typing import Any

from .seam import StepRuntime

PROMPT = "The capital of France is"
TOKENS = 8


def canary(runtime: StepRuntime) -> tuple[int, ...]:
    """`TOKENS` greedy tokens after `PROMPT`, with the residency in force. Raises KvCacheFull without room."""
    prompt: list[int] = list(runtime.tokenizer(PROMPT)["input_ids"])
    sequence: Any = runtime.new_sequence(len(prompt) + TOKENS)
    try:
        tokens: list[int] = []
        feed = prompt
        for _ in range(TOKENS):
            token = int(runtime.step([(sequence, feed)])[0].argmax())
            tokens.append(token)
            feed = [token]
        return tuple(tokens)
    finally:
        runtime.free(sequence)
