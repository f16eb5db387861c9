"""Attention over a packed batch: the new tokens of all sequences in one row, each sequence over its own KV cache.

Registered with transformers, so that every model class that lets its attention be chosen can be batched this way. The
batch reaches it as the keyword argument `packed` of the model's forward.
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from .kv import Sequence

NAME = "estiba"


class UnsupportedAttention(RuntimeError):
    """The model wants something of its attention that this engine doesn't do."""


class PackedBatch:
    """The sequences of one step and where each one's new tokens lie in the row."""

    def __init__(self, items: Items[tuple[Sequence, int]]) -> None:
        """`items`: each sequence with the number of its new tokens, in the order of the row."""
        self.spans: list[tuple[int, Sequence, int, int]] = []
        at = 0
        for index, (sequence, count) in enumerate(items):
            self.spans.append((index, sequence, at, at + count))
            sequence.written = 0
            at += count
        self.tokens = at
        self._masks: dict[tuple[int, int | None], torch.Tensor] = {}

    def last_rows(self) -> list[int]:
        """Row of each sequence's last new token."""
        return [end - 1 for _, _, _, end in self.spans]

    def positions(self) -> list[int]:
        return [
            at for _, sequence, begin, end in self.spans for at in range(sequence.length, sequence.length + end - begin)
        ]

    def commit(self) -> None:
        """The step is done: its tokens belong to the sequences."""
        for _, sequence, begin, end in self.spans:
            sequence.length += end - begin

    def mask(self, index: int, before: int, count: int, window: int | None, like: torch.Tensor) -> torch.Tensor:
        """What `count` new tokens after `before` others see: 0 or -inf, `[count, before + count]`. Made once a step."""
        known = self._masks.get((index, window))
        if known is None:
            key = torch.arange(before + count, device=like.device)
            query = key[before:, None]
            hidden = key > query
            if window is not None:
                hidden |= key <= query - window
            known = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device).masked_fill_(hidden, -torch.inf)
            self._masks[index, window] = known
        return known


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    packed: PackedBatch | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """`query` is `[1, heads, tokens, d]`, `key` and `value` `[1, kv_heads, tokens, d]`.

    Returns `[1, tokens, heads, d]`. Raises UnsupportedAttention for masks, soft caps and sinks, and where no packed
    batch reaches it.
    """
    if packed is None or attention_mask is not None or softcap is not None or s_aux is not None:
        raise UnsupportedAttention("it wants masks, soft caps or sinks of its attention, or doesn't pass the batch on")
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    heads, size = query.shape[1], query.shape[3]
    out = query.new_empty(1, query.shape[2], heads, size)
    for index, sequence, begin, end in packed.spans:
        keys, values = sequence.layers[layer]
        before, count = sequence.length, end - begin
        after = before + count
        keys[:, :, before:after] = key[:, :, begin:end]
        values[:, :, before:after] = value[:, :, begin:end]
        sequence.written += 1
        first = 0 if sliding_window is None or count > 1 else max(0, after - sliding_window)
        seen, held = keys[:, :, first:after], values[:, :, first:after]
        asked = query[:, :, begin:end]
        if count == 1:
            # one token: the heads that share a KV head become rows of one small attention, with nothing to mask
            grouped = asked.view(1, seen.shape[1], -1, size)
            answer = _attend(grouped, seen, held, scaling).view(1, 1, heads, size)
            out[:, begin:end] = answer
        else:
            narrow = sliding_window is not None and after > sliding_window
            mask = packed.mask(index, before, count, sliding_window, query) if before or narrow else None
            out[:, begin:end] = _attend(asked, seen, held, scaling, mask, causal=mask is None).transpose(1, 2)
    return out, None


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float | None,
    mask: torch.Tensor | None = None,
    *,
    causal: bool = False,
) -> torch.Tensor:
    if query.is_meta:
        # the CPU kernel allocates its output and one float for each row; on meta torch would count a slower path
        query.new_empty(query.shape[:-1], dtype=torch.float32)
        return torch.empty_like(query)
    grouped = query.shape[1] != key.shape[1]
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=causal, scale=scaling, enable_gqa=grouped
    )


AttentionInterface.register(NAME, packed_attention)
