"""Copies between host memory and a device, in chunks, each with its time on the host link."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch


class Link(Protocol):
    """The host link's clock: `acquire` returns when `n_bytes` have had their time on the link."""

    def acquire(self, n_bytes: int, /) -> object: ...


class HostLinkTransfer:
    """Moves bytes over one link. Usable from several threads; the link orders them."""

    def __init__(self, link: Link, chunk_bytes: int) -> None:
        if chunk_bytes <= 0:
            raise ValueError(f"chunk_bytes must be positive, not {chunk_bytes}")
        self._link = link
        self._chunk_bytes = chunk_bytes

    def copy(self, target: torch.Tensor, source: torch.Tensor, between: Callable[[], None] = lambda: None) -> None:
        """Copy flat uint8 tensors of one size. `between` is called before each chunk; it may raise to give up.

        numpy copies in the calling thread alone: torch would take the threads that compute.
        """
        to, of = target.numpy(), source.numpy()
        for at in range(0, len(to), self._chunk_bytes):
            between()
            end = min(at + self._chunk_bytes, len(to))
            self._link.acquire(end - at)
            np.copyto(to[at:end], of[at:end])

    def charge(self, n_bytes: int) -> None:
        """Give the link its time for bytes that reach the device by another way than `copy`."""
        for at in range(0, n_bytes, self._chunk_bytes):
            self._link.acquire(min(self._chunk_bytes, n_bytes - at))
