"""A model's weights and where they are: on the device, in host memory, or nowhere.

Device memory is a flat buffer for the fixed weights, one for each resident block, and, while any block is offloaded, a
ring of slots that offloaded blocks pass through. All of it is in the device account before it is allocated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from estiba_agent.devices import DeviceAccount
from estiba_agent.models.layout import Segment
from estiba_agent.offload import (
    SLOTS,
    HostLinkTransfer,
    WeightStream,
    allocate,
    blocks_to_offload,
    held_bytes,
)

from .skeleton import Skeleton

log = logging.getLogger(__name__)

Said = Callable[[str], None]


class Part:
    """Weights that move together: one segment's parameters and the buffer that holds their bytes."""

    def __init__(self, skeleton: Skeleton, segment: Segment) -> None:
        self.segment = segment
        self.n_bytes = segment.n_bytes
        self.device: torch.Tensor | None = None
        self.host: torch.Tensor | None = None
        self._skeleton = skeleton
        self._places = skeleton.places(segment)

    def views(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        return self._skeleton.views(self.segment, buffer)

    def bind(self, views: list[torch.Tensor]) -> None:
        """Let the parameters show these bytes."""
        for parameter, view in zip(self._places, views, strict=True):
            parameter.data = view

    def unbind(self) -> None:
        """Let the parameters hold on to nothing."""
        nothing = torch.empty(0, dtype=self._skeleton.dtype)
        for parameter in self._places:
            parameter.data = nothing

    def read_to_device(self, transfer: HostLinkTransfer) -> None:
        buffer = allocate(self.n_bytes)
        transfer.charge(self.n_bytes)
        self._skeleton.read(self.segment, buffer)
        self.device = buffer
        self.bind(self.views(buffer))

    def read_to_host(self) -> None:
        buffer = allocate(self.n_bytes)
        self._skeleton.read(self.segment, buffer)
        self.host = buffer

    def to_device(self, transfer: HostLinkTransfer) -> None:
        """From host memory, which is then given back."""
        assert self.host is not None
        buffer = allocate(self.n_bytes)
        transfer.copy(buffer, self.host)
        self.device, self.host = buffer, None
        self.bind(self.views(buffer))

    def to_host(self, transfer: HostLinkTransfer) -> None:
        """From the device, whose memory is then given back."""
        assert self.device is not None
        buffer = allocate(self.n_bytes)
        transfer.copy(buffer, self.device)
        self.unbind()
        self.device, self.host = None, buffer

    def drop(self) -> None:
        self.unbind()
        self.device = self.host = None


@dataclass(slots=True)
class Streamed:
    """What streaming cost a step: seconds that compute waited, bytes that were copied for it."""

    wait_s: float = 0.0
    n_bytes: int = 0


class ModelWeights:
    """All weights of one model. Not thread-safe: everything happens between steps, in the thread that computes."""

    def __init__(self, skeleton: Skeleton, account: DeviceAccount, transfer: HostLinkTransfer) -> None:
        self._account = account
        self._transfer = transfer
        self._fixed = Part(skeleton, skeleton.layout.fixed)
        self._blocks = [Part(skeleton, segment) for segment in skeleton.layout.blocks]
        self._block_bytes = skeleton.layout.block_bytes
        self._slots: list[torch.Tensor] = []
        self._slot_views: dict[tuple[int, int], list[torch.Tensor]] = {}
        self._stream: WeightStream | None = None
        self._streamed = Streamed()
        self._accounted = 0
        for index, block in enumerate(skeleton.blocks):
            block.register_forward_pre_hook(partial(self._enter, index))
            block.register_forward_hook(partial(self._leave, index))

    # -- figures ----------------------------------------------------------------------------------------------------

    @property
    def weight_bytes(self) -> int:
        return self._fixed.n_bytes + sum(self._block_bytes)

    @property
    def resident_bytes(self) -> int:
        """Weights on the device, the ring's copies not counted."""
        return sum(part.n_bytes for part in self._parts() if part.device is not None)

    @property
    def offloaded(self) -> tuple[int, ...]:
        """Blocks that are in host memory."""
        return tuple(i for i, block in enumerate(self._blocks) if block.host is not None)

    @property
    def host_bytes(self) -> int:
        """Host memory taken from the system for weights."""
        return sum(held_bytes(part.n_bytes) for part in self._parts() if part.host is not None)

    @property
    def ring_bytes(self) -> int:
        """Size of the ring while anything is offloaded."""
        return SLOTS * max(self._block_bytes, default=0)

    # -- moves ------------------------------------------------------------------------------------------------------

    def load(self, resident_bytes: int, say: Said) -> None:
        """Read everything from the files. Raises DeviceOutOfMemory with nothing allocated, or BadModel."""
        with self._towards(resident_bytes) as offloaded, self._or_nothing():
            say(f"reading {self.weight_bytes >> 20} MiB of weights")
            self._fixed.read_to_device(self._transfer)
            for index, block in enumerate(self._blocks):
                if index in offloaded:
                    block.read_to_host()
                else:
                    block.read_to_device(self._transfer)
            say(f"read the weights; {len(offloaded)} of {len(self._blocks)} blocks are offloaded")

    def set_resident_bytes(self, n: int) -> int:
        """Keep the fixed weights and as many blocks as fit into `n` bytes; return what is resident then.

        Raises DeviceOutOfMemory with nothing changed.
        """
        with self._towards(n) as offloaded:
            for index in offloaded:
                if self._blocks[index].device is not None:
                    self._blocks[index].to_host(self._transfer)
            for part in (self._fixed, *(b for i, b in enumerate(self._blocks) if i not in offloaded)):
                if part.device is None:
                    part.to_device(self._transfer)
        return self.resident_bytes

    def to_host(self) -> None:
        """Everything to host memory; nothing stays on the device. `set_resident_bytes` brings it back."""
        self._stop_stream()
        self._free_ring()
        for part in self._parts():
            if part.device is not None:
                part.to_host(self._transfer)
                self._account_exactly()
        self._account_exactly()

    def drop(self) -> None:
        """Forget all weights, wherever they are."""
        try:
            self._stop_stream()
        finally:
            self._free_ring()
            for part in self._parts():
                part.drop()
            self._account_exactly()

    def begin_step(self) -> None:
        """The next block asked for is the first one, also where the last step or the copier since then broke off."""
        self._streamed = Streamed()
        if self._stream is not None and not self._stream.ready:
            self._stop_stream()
            self._start_stream()

    def device_need_bytes(self, resident_bytes: int) -> int:
        """Device bytes that weights and ring take at this residency."""
        return self._need(self._offloaded_at(resident_bytes))

    @property
    def streamed(self) -> Streamed:
        """What streaming cost since the step began."""
        return self._streamed

    # -- inner ------------------------------------------------------------------------------------------------------

    def _parts(self) -> Iterator[Part]:
        yield self._fixed
        yield from self._blocks

    def _offloaded_at(self, resident_bytes: int) -> tuple[int, ...]:
        return blocks_to_offload(self._block_bytes, resident_bytes - self._fixed.n_bytes)

    def _need(self, offloaded: tuple[int, ...]) -> int:
        resident = self.weight_bytes - sum(self._block_bytes[i] for i in offloaded)
        return resident + (self.ring_bytes if offloaded else 0)

    @contextmanager
    def _towards(self, resident_bytes: int) -> Iterator[tuple[int, ...]]:
        """Account what is needed, let the caller move parts, then settle ring, stream and account on what is so."""
        offloaded = self._offloaded_at(resident_bytes)
        self._account_at_least(self._need(offloaded))
        self._stop_stream()
        if not offloaded:
            self._free_ring()
        try:
            yield offloaded
        finally:
            # also after a failure half-way: every part is in one place or the other, and the model can still run
            if any(block.host is not None for block in self._blocks):
                self._make_ring()
            self._account_exactly()
            if self._fixed.device is not None:
                self._start_stream()

    @contextmanager
    def _or_nothing(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            for part in self._parts():
                part.drop()
            raise

    def _account_at_least(self, n_bytes: int) -> None:
        if n_bytes > self._accounted:
            self._account.grow(n_bytes - self._accounted)
            self._accounted = n_bytes

    def _account_exactly(self) -> None:
        held = self.resident_bytes + sum(slot.numel() for slot in self._slots)
        self._account_at_least(held)
        if held < self._accounted:
            self._account.shrink(self._accounted - held)
            self._accounted = held

    def _make_ring(self) -> None:
        if not self._slots:
            self._account_at_least(self.resident_bytes + self.ring_bytes)
            self._slots = [allocate(self.ring_bytes // SLOTS) for _ in range(SLOTS)]

    def _free_ring(self) -> None:
        self._slot_views.clear()
        self._slots.clear()
        for block in self._blocks:
            if block.device is None:
                block.unbind()

    def _start_stream(self) -> None:
        order = self.offloaded
        if order:
            sources = [host for block in self._blocks if (host := block.host) is not None]
            self._stream = WeightStream(order, sources, self._slots[: len(order)], self._transfer.copy)

    def _stop_stream(self) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            stream.close()

    def _enter(self, index: int, *_: Any) -> None:
        """Before a block's forward: an offloaded block's weights are in the ring, and its parameters show them."""
        block = self._blocks[index]
        if block.device is not None:
            return
        assert self._stream is not None
        slot, copied, waited = self._stream.acquire(index)
        views = self._slot_views.get((index, slot))
        if views is None:
            views = self._slot_views[index, slot] = block.views(self._slots[slot])
        block.bind(views)
        self._streamed.wait_s += waited
        self._streamed.n_bytes += copied

    def _leave(self, index: int, *_: Any) -> None:
        """After a block's forward: its slot may be filled with the next block."""
        if self._blocks[index].device is None:
            assert self._stream is not None
            self._stream.release()
