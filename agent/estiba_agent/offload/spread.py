"""Which blocks leave the device: as few as needed, spread evenly, so that each copy hides behind the blocks between."""

from __future__ import annotations

from collections.abc import Sequence


def offloaded_blocks(count: int, of: int) -> tuple[int, ...]:
    """`count` of `of` blocks, evenly spread, in order."""
    if not 0 <= count <= of:
        raise ValueError(f"{count} of {of} blocks can't be offloaded")
    return tuple((2 * i + 1) * of // (2 * count) for i in range(count))


def blocks_to_offload(block_bytes: Sequence[int], room_bytes: int) -> tuple[int, ...]:
    """The fewest blocks to offload so that the others fit into `room_bytes`."""
    whole = sum(block_bytes)
    for count in range(len(block_bytes) + 1):
        chosen = offloaded_blocks(count, len(block_bytes))
        if whole - sum(block_bytes[i] for i in chosen) <= room_bytes:
            return chosen
    return tuple(range(len(block_bytes)))
