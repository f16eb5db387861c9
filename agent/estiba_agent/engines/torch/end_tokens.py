"""Which tokens end an answer."""

from __future__ import annotations

from collections.abc import Iterable

from .seam import EngineRuntime

TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "<|end_of_text|>")
"""End-of-turn tokens by their names: converted weights often come without the generation config that lists them."""


def end_tokens(runtime: EngineRuntime) -> frozenset[int]:
    """End tokens of a model: what its generation config, config and tokenizer say, and known end-of-turn tokens."""
    found: set[int] = set()
    for source in (runtime.generation_config, runtime.config, runtime.tokenizer):
        found.update(_ids(getattr(source, "eos_token_id", None)))
    added = getattr(runtime.tokenizer, "added_tokens_decoder", None) or {}
    found.update(int(token) for token, piece in added.items() if str(piece) in TURN_ENDS)
    return frozenset(found)


def _ids(value: int | Iterable[int] | None) -> Iterable[int]:
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(int(token) for token in value)
