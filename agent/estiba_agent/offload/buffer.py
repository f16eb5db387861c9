"""Memory for weights and KV cache, taken from the system and given back to it the moment its last view is gone."""

from __future__ import annotations

import mmap

import torch

PAGE_BYTES = mmap.PAGESIZE


def allocate(n_bytes: int) -> torch.Tensor:
    """`n_bytes` of page-aligned zeroed memory, as a flat uint8 tensor.

    Mapped, not taken from the heap: a heap keeps what was freed, and a sleeping model would go on filling the machine.
    Raises MemoryError when the system has none.
    """
    if n_bytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    try:
        pages = mmap.mmap(-1, n_bytes)
        pages.madvise(mmap.MADV_HUGEPAGE)
    except OSError as error:
        raise MemoryError(f"the system has no {n_bytes} bytes of memory left: {error}") from error
    return torch.frombuffer(pages, dtype=torch.uint8)


def held_bytes(n_bytes: int) -> int:
    """What a buffer of `n_bytes` takes from the system: whole pages."""
    return n_bytes + -n_bytes % PAGE_BYTES
