"""Where every weight lies: one flat buffer for what never leaves the device, and one for each block of the model.

Made from names and shapes alone, so that sizes are known without a tensor library and agree with what the engine holds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .bad_model import BadModel
from .checkpoint import Checkpoint
from .dtype import BYTES_PER_VALUE

ALIGNMENT = 64
"""Bytes; a cache line and the widest vector, so that a kernel meets the same alignment wherever a buffer lies."""
BLOCK = re.compile(r"^((?:\w+\.)*(?:layers|h|blocks))\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class PlacedTensor:
    """One weight inside its segment. `offset` and `n_bytes` are bytes in the served dtype."""

    name: str
    shape: tuple[int, ...]
    offset: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Weights that move together, in one flat buffer of `n_bytes`."""

    tensors: tuple[PlacedTensor, ...]
    n_bytes: int


@dataclass(frozen=True, slots=True)
class WeightLayout:
    """All weights of a model in `dtype`. `blocks_at` is the module that lists the blocks, such as `model.layers`."""

    dtype: str
    fixed: Segment
    blocks: tuple[Segment, ...]
    blocks_at: str

    @property
    def weight_bytes(self) -> int:
        return self.fixed.n_bytes + sum(self.block_bytes)

    @property
    def block_bytes(self) -> tuple[int, ...]:
        return tuple(block.n_bytes for block in self.blocks)


def lay_out(checkpoint: Checkpoint, dtype: str) -> WeightLayout:
    """The layout in `dtype` (or `auto`). Raises BadModel when the blocks of the model can't be told from the names."""
    served = checkpoint.resolved_dtype(dtype)
    wanted = checkpoint.number("num_hidden_layers", "n_layer")
    if wanted is None:
        raise BadModel(checkpoint.uri, "its config.json doesn't say num_hidden_layers; only text models can be run")
    found: dict[str, dict[int, list[str]]] = {}
    for name in checkpoint.tensors:
        if match := BLOCK.match(name):
            found.setdefault(match[1], {}).setdefault(int(match[2]), []).append(name)
    place = max(found, key=lambda prefix: len(found[prefix]), default="")
    blocks = found.get(place, {})
    if sorted(blocks) != list(range(wanted)):
        absent = [str(i) for i in range(wanted) if i not in blocks]
        what = f"no weights for the layers {', '.join(absent[:5])}" if absent else f"weights for {len(blocks)} layers"
        raise BadModel(checkpoint.uri, f"config.json says {wanted} layers, but {checkpoint.path} has {what}")
    in_blocks = {name for names in blocks.values() for name in names}
    return WeightLayout(
        dtype=served,
        fixed=_segment(checkpoint, [name for name in checkpoint.tensors if name not in in_blocks], served),
        blocks=tuple(_segment(checkpoint, blocks[i], served) for i in range(wanted)),
        blocks_at=place,
    )


def _segment(checkpoint: Checkpoint, names: list[str], dtype: str) -> Segment:
    at = 0
    placed: list[PlacedTensor] = []
    for name in sorted(names):
        tensor = checkpoint.tensors[name]
        n_bytes = tensor.values * BYTES_PER_VALUE[dtype]
        placed.append(PlacedTensor(name, tensor.shape, at, n_bytes))
        at += n_bytes + -n_bytes % ALIGNMENT
    return Segment(tuple(placed), at)
