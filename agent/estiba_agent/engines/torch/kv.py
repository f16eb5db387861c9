"""KV cache: every sequence owns the keys and values of all its tokens, in one buffer reserved when it begins."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from estiba_agent.devices import DeviceAccount, DeviceOutOfMemory
from estiba_agent.offload import HostLinkTransfer, allocate, held_bytes
from estiba_scheduler.quantities import format_bytes


class KvCacheFull(RuntimeError):
    """The KV budget has no room for what was asked; the message has the numbers."""


@dataclass(frozen=True, slots=True)
class KvShape:
    """Keys and values of one token: `[layers, 2, kv_heads, head_dim]` of `dtype`."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize


class Sequence:
    """One sequence's cache. `length` tokens are in it, `capacity` fit; `layers[i]` is (keys, values) of layer `i`,
    each `[1, kv_heads, capacity, head_dim]`.
    """

    __slots__ = ("_buffer", "_saved", "_shape", "capacity", "layers", "length", "n_bytes", "written")

    def __init__(self, shape: KvShape, capacity: int, buffer: torch.Tensor) -> None:
        self._shape = shape
        self.capacity = capacity
        self.n_bytes = buffer.numel()
        self.length = 0
        self.written = 0  # layers that the step under way has appended to
        self._saved: torch.Tensor | None = None
        self._use(buffer)

    @property
    def on_device(self) -> bool:
        return self._buffer is not None

    @property
    def saved_bytes(self) -> int:
        return 0 if self._saved is None else held_bytes(self.n_bytes)

    def _use(self, buffer: torch.Tensor | None) -> None:
        self._buffer = buffer
        self.layers: list[tuple[torch.Tensor, torch.Tensor]] = []
        if buffer is not None:
            shape = self._shape
            whole = buffer.view(shape.dtype).view(shape.layers, 2, 1, shape.kv_heads, self.capacity, shape.head_dim)
            self.layers = [(whole[i, 0], whole[i, 1]) for i in range(shape.layers)]


class KvCache:
    """All sequences of one engine, within a budget, accounted on the device while they hold memory."""

    def __init__(self, shape: KvShape, account: DeviceAccount, transfer: HostLinkTransfer, budget_bytes: int) -> None:
        self.shape = shape
        self.budget_bytes = budget_bytes
        self._account = account
        self._transfer = transfer
        self._sequences: list[Sequence] = []

    @property
    def used_bytes(self) -> int:
        """Reserved on the device."""
        return sum(sequence.n_bytes for sequence in self._sequences if sequence.on_device)

    @property
    def saved_bytes(self) -> int:
        """Kept in host memory by sequences that sleep."""
        return sum(sequence.saved_bytes for sequence in self._sequences)

    def __contains__(self, sequence: object) -> bool:
        return any(sequence is known for known in self._sequences)

    def new_sequence(self, tokens: int) -> Sequence:
        """Reserve room for `tokens` tokens. Raises KvCacheFull."""
        if tokens <= 0:
            raise ValueError(f"a sequence needs room for at least one token, not {tokens}")
        need, used = tokens * self.shape.bytes_per_token, self.used_bytes
        if used + need > self.budget_bytes:
            raise KvCacheFull(
                f"{tokens} tokens need {format_bytes(need)} of KV cache ({need} bytes), but {format_bytes(used)} of "
                f"the budget of {format_bytes(self.budget_bytes)} ({self.budget_bytes} bytes) are in use"
            )
        try:
            self._account.grow(need)
        except DeviceOutOfMemory as error:
            raise KvCacheFull(f"{tokens} tokens fit into the KV budget but not onto the device: {error}") from error
        try:
            sequence = Sequence(self.shape, tokens, allocate(need))
        except BaseException:
            self._account.shrink(need)
            raise
        self._sequences.append(sequence)
        return sequence

    def free(self, sequence: Sequence) -> None:
        """Give a sequence's memory back; freeing one twice does nothing."""
        if sequence in self:
            self._sequences = [known for known in self._sequences if known is not sequence]
            if sequence.on_device:
                self._account.shrink(sequence.n_bytes)
            sequence._use(None)
            sequence._saved = None

    def set_budget(self, n_bytes: int) -> None:
        """Change the budget. Raises KvCacheFull when more than that is reserved."""
        used = self.used_bytes
        if n_bytes < used:
            raise KvCacheFull(
                f"the KV budget can't be {format_bytes(n_bytes)} ({n_bytes} bytes): sequences hold "
                f"{format_bytes(used)} ({used} bytes); let them finish first"
            )
        self.budget_bytes = n_bytes

    def save(self) -> None:
        """Move every sequence to host memory."""
        for sequence in self._sequences:
            buffer = sequence._buffer
            if buffer is not None:
                saved = allocate(sequence.n_bytes)
                self._transfer.copy(saved, buffer)
                sequence._saved = saved
                sequence._use(None)
                del buffer
                self._account.shrink(sequence.n_bytes)

    def restore_bytes(self, budget_bytes: int) -> int:
        """Device bytes that `restore` will take. Raises KvCacheFull when they are more than the budget to come."""
        kept = sum(sequence.n_bytes for sequence in self._sequences if sequence._saved is not None)
        if kept > budget_bytes:
            raise KvCacheFull(
                f"sequences kept {format_bytes(kept)} ({kept} bytes) of KV cache through the sleep, but the budget "
                f"given is {format_bytes(budget_bytes)} ({budget_bytes} bytes)"
            )
        return kept

    def restore(self) -> None:
        """Bring saved sequences back to the device; their bytes are in the account already."""
        for sequence in self._sequences:
            if sequence._saved is not None:
                buffer = allocate(sequence.n_bytes)
                self._transfer.copy(buffer, sequence._saved)
                sequence._use(buffer)
                sequence._saved = None

    def drop(self) -> None:
        """Forget every sequence."""
        for sequence in list(self._sequences):
            self.free(sequence)
