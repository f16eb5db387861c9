"""How much device memory a step takes beyond weights and KV cache, counted before any step is taken.

The model's own operations are run on the meta device, which allocates nothing, while a meter adds up what they would
hold at the worst moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from estiba_agent.models import BadModel

from .kv import KvShape, Sequence
from .packed_attention import PackedBatch, UnsupportedAttention
from .skeleton import Skeleton


class AllocationMeter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes of the tensors that were made inside it and still live, and the most there were at once."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak: int = 0
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {t.untyped_storage()._cdata for t in tree_iter((args, kwargs)) if isinstance(t, torch.Tensor)}
        result: Any = func(*args, **(kwargs or {}))
        self._live = {at: entry for at, entry in self._live.items() if not entry[0].expired()}  # type: ignore[no-untyped-call]
        for tensor in tree_iter(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in given and storage._cdata not in self._live:
                    reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                    self._live[storage._cdata] = (reference, storage.nbytes())
        self.peak = max(self.peak, sum(n_bytes for _, n_bytes in self._live.values()))
        return result


@dataclass(frozen=True, slots=True)
class ActivationBytes:
    """Peak bytes of a step: linear in the tokens of the step, and a row of logits for each sequence."""

    first_token: int
    each_token: int
    each_row: int

    def of(self, tokens: int, sequences: int) -> int:
        return self.first_token + self.each_token * (tokens - 1) + self.each_row * (sequences - 1)


def count_activations(skeleton: Skeleton, shape: KvShape, tokens: int, context_tokens: int) -> ActivationBytes:
    """Run steps of one and of `tokens` tokens, the last of a full context, on a skeleton without weights.

    Raises BadModel when the model's attention can't be batched by this engine.
    """
    one = _peak(skeleton, shape, 1, context_tokens)
    many = _peak(skeleton, shape, tokens, max(context_tokens, tokens))
    return ActivationBytes(
        first_token=one,
        each_token=-(-max(0, many - one) // max(1, tokens - 1)),
        each_row=skeleton.config.vocab_size * skeleton.dtype.itemsize,
    )


def _peak(skeleton: Skeleton, shape: KvShape, tokens: int, context_tokens: int) -> int:
    buffer = torch.empty(context_tokens * shape.bytes_per_token, dtype=torch.uint8, device="meta")
    sequence = Sequence(shape, context_tokens, buffer)
    sequence.length = context_tokens - tokens
    batch = PackedBatch([(sequence, tokens)])
    try:
        with AllocationMeter() as meter:
            forward(skeleton.module, [0] * tokens, batch, device="meta")
    except (UnsupportedAttention, IndexError, RuntimeError, AttributeError) as error:
        raise BadModel(
            skeleton.checkpoint.uri, f"this engine can't batch {type(skeleton.module).__name__}: {error}"
        ) from error
    if sequence.written != shape.layers:
        raise BadModel(
            skeleton.checkpoint.uri,
            f"this engine can't batch {type(skeleton.module).__name__}: {sequence.written} of "
            f"its {shape.layers} layers use the attention given to them",
        )
    peak: int = meter.peak
    return peak


def forward(module: torch.nn.Module, tokens: list[int], batch: PackedBatch, device: str = "cpu") -> torch.Tensor:
    """Run the model over a packed row; return the logits of each sequence's last token, `[sequences, vocab]`."""
    with torch.inference_mode():
        output = module(
            input_ids=torch.tensor([tokens], device=device),
            position_ids=torch.tensor([batch.positions()], device=device),
            use_cache=False,
            logits_to_keep=torch.tensor(batch.last_rows(), device=device),
            packed=batch,
        )
    logits: torch.Tensor = output.logits[0]
    return logits
