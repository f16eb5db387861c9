"""Streaming of offloaded blocks: a ring of device buffers that a copier thread keeps filled ahead of the compute.

The offloaded blocks are used in the same order in every step, so uses and loads are numbered from 0 without end: load
`n` brings block `order[n mod k]` into slot `n mod slots` for use `n`. Load `n` may begin once use `n - slots` is
over. After the last block of a step come the first ones of the next step, so the ring is warm when a step begins, and
nothing is copied while no step runs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

import torch

log = logging.getLogger(__name__)

SLOTS = 2
STALL_S = 120.0
"""Longest wait without any chunk arriving before the stream is called stalled."""
JOIN_S = 120.0

Copy = Callable[[torch.Tensor, torch.Tensor, Callable[[], None]], None]
"""Copies host bytes into a slot and calls its last argument between chunks."""


class StreamFailed(RuntimeError):
    """The copier died or stalled; the step that waited for its block can't be finished."""


class _Stopped(Exception):
    """Ends the copier between two chunks."""


class WeightStream:
    """Offloaded blocks through a ring of slots. `acquire` and `release` belong to the compute thread."""

    def __init__(
        self, order: Sequence[int], sources: Sequence[torch.Tensor], slots: Sequence[torch.Tensor], copy: Copy
    ) -> None:
        """`order`: the blocks in the order of their use; `sources[i]`: host bytes of `order[i]`."""
        if not order or len(order) != len(sources) or not slots:
            raise ValueError("a stream needs blocks, one source for each, and slots")
        self._order = tuple(order)
        self._sources = tuple(sources)
        self._slots = tuple(slots)
        self._copy = copy
        self._changed = threading.Condition()
        self._loaded = 0
        self._used = 0
        self._held: int | None = None
        self._chunks = 0
        self._copied: dict[int, int] = {}
        self._stopping = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="weight-stream", daemon=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        """The copier lives and the next use is the first of a step."""
        return self._error is None and self._held is None and self._used % len(self._order) == 0

    def acquire(self, block: int) -> tuple[int, int, float]:
        """Wait until `block` is in its slot; return the slot, the bytes copied for this use, and the seconds waited.

        Raises StreamFailed when the copier died or no chunk came for `STALL_S` seconds.
        """
        use = self._used
        if self._order[use % len(self._order)] != block or self._held is not None:
            raise StreamFailed(f"block {block} was asked for out of order")
        with self._changed:
            began = time.perf_counter()
            if self._loaded <= use:
                self._wait_for(use, block)
            waited = time.perf_counter() - began
            self._held = use
            return use % len(self._slots), self._copied.pop(use), waited

    def release(self) -> None:
        """The block acquired last is not needed any more; its slot may be filled anew."""
        with self._changed:
            self._held = None
            self._used += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Stop the copier. Raises StreamFailed when it doesn't stop by its deadline (a link that never answers)."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(JOIN_S)
        if self._thread.is_alive():
            raise StreamFailed(f"the copier did not stop within {JOIN_S:.0f} s: the host link doesn't answer")

    def _wait_for(self, use: int, block: int) -> None:
        chunks, deadline = self._chunks, time.monotonic() + STALL_S
        while self._loaded <= use:
            if self._error is not None:
                raise StreamFailed(f"streaming block {block} failed: {self._error}") from self._error
            if self._stopping:
                raise StreamFailed(f"the stream was closed while block {block} was waited for")
            if self._chunks != chunks:
                chunks, deadline = self._chunks, time.monotonic() + STALL_S
            left = deadline - time.monotonic()
            if left <= 0:
                raise StreamFailed(f"no bytes of block {block} came over the host link for {STALL_S:.0f} s")
            self._changed.wait(left)

    def _run(self) -> None:
        inside: list[int | None] = [None] * len(self._slots)
        number = 0
        try:
            while self._may_load(number):
                at, slot = number % len(self._order), number % len(self._slots)
                copied = 0
                if inside[slot] != at:  # with no more blocks than slots, each stays where it is
                    source = self._sources[at]
                    copied = source.numel()
                    inside[slot] = None
                    self._copy(self._slots[slot][:copied], source, self._between_chunks)
                    inside[slot] = at
                with self._changed:
                    self._copied[number] = copied
                    self._loaded = number = number + 1
                    self._changed.notify_all()
        except _Stopped:
            pass
        except BaseException as error:  # whatever it is, the step that waits must hear of it
            log.exception("the weight stream died")
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _may_load(self, number: int) -> bool:
        """Wait, without a deadline of its own, until load `number` may begin; False: the stream is closing."""
        with self._changed:
            while not self._stopping and number >= self._used + len(self._slots):
                self._changed.wait()
            return not self._stopping

    def _between_chunks(self) -> None:
        with self._changed:
            self._chunks += 1
            if self._stopping:
                raise _Stopped
