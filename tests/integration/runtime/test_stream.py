"""The ring of slots and its copier, chunk by chunk."""

from __future__ import annotations

import threading

import pytest
import torch

from estiba_agent.offload import HostLinkTransfer, StreamFailed, WeightStream, stream

from ...waiting import until
from .machine import BreakableLink, GatedLink

BLOCK = 4 * 1024
CHUNK = 1024
CHUNKS = BLOCK // CHUNK


def a_stream(blocks: int, link: BreakableLink | GatedLink, slots: int = 2) -> tuple[WeightStream, list[torch.Tensor]]:
    """A stream of `blocks` blocks, block `i` (called `10 + i`) full of the byte `i + 1`; and its slots."""
    sources = [torch.full((BLOCK,), i + 1, dtype=torch.uint8) for i in range(blocks)]
    ring = [torch.zeros(BLOCK, dtype=torch.uint8) for _ in range(slots)]
    order = [10 + i for i in range(blocks)]
    return WeightStream(order, sources, ring, HostLinkTransfer(link, CHUNK).copy), ring


def test_every_use_finds_its_block_step_after_step() -> None:
    weights, ring = a_stream(5, BreakableLink())
    for _ in range(4):
        for block in range(5):
            slot, copied, _ = weights.acquire(10 + block)
            assert (ring[slot] == block + 1).all()
            assert copied == BLOCK
            weights.release()
        assert weights.ready
    weights.close()


def test_the_ring_is_filled_ahead_and_no_further() -> None:
    link = BreakableLink()
    weights, _ = a_stream(5, link)
    until(lambda: len(link.chunks) == 2 * CHUNKS, 10, "both slots filled")
    weights.acquire(10)
    assert len(link.chunks) == 2 * CHUNKS
    weights.release()
    until(lambda: len(link.chunks) == 3 * CHUNKS, 10, "the released slot filled")
    weights.close()
    assert len(link.chunks) == 3 * CHUNKS


def test_a_slot_in_use_is_not_overwritten() -> None:
    link = GatedLink()
    weights, ring = a_stream(3, link)
    link.allow(100)
    slot, _, _ = weights.acquire(10)
    until(lambda: link.asked == 2 * CHUNKS, 10)
    assert (ring[slot] == 1).all()
    weights.release()
    until(lambda: link.asked == 3 * CHUNKS, 10)
    until(lambda: bool((ring[slot] == 3).all()), 10)
    weights.close()


def test_compute_waits_for_its_own_block_only() -> None:
    link = GatedLink()
    weights, ring = a_stream(3, link)
    link.allow(CHUNKS + 1)  # the first block and a part of the second
    slot, _, _ = weights.acquire(10)
    assert (ring[slot] == 1).all()
    link.allow(100)
    weights.close()


@pytest.mark.parametrize("blocks", [1, 2])
def test_blocks_that_all_fit_into_the_ring_are_copied_once(blocks: int) -> None:
    link = BreakableLink()
    weights, ring = a_stream(blocks, link, slots=blocks)
    for _ in range(5):
        for block in range(blocks):
            slot, _, _ = weights.acquire(10 + block)
            assert (ring[slot] == block + 1).all()
            weights.release()
    weights.close()
    assert len(link.chunks) == blocks * CHUNKS


def test_a_copier_that_dies_is_heard_of() -> None:
    link = BreakableLink()
    link.error = OSError("the link is down")
    weights, _ = a_stream(3, link)
    with pytest.raises(StreamFailed, match="streaming block 10 failed: the link is down") as caught:
        weights.acquire(10)
    assert caught.value.__cause__ is link.error
    weights.close()


def test_a_link_that_says_nothing_is_a_failure_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "STALL_S", 0.05)
    link = GatedLink()
    weights, _ = a_stream(3, link)
    with pytest.raises(StreamFailed, match="no bytes of block 10"):
        weights.acquire(10)
    link.allow(1)
    weights.close()


def test_a_stream_closes_in_the_middle_of_a_block() -> None:
    link = GatedLink()
    weights, _ = a_stream(3, link)
    until(lambda: link.asked == 1, 10)
    closing = threading.Thread(target=weights.close)
    closing.start()
    until(lambda: weights._stopping, 10)
    link.allow(100)
    closing.join(10)
    assert not closing.is_alive()
    assert link.asked == 1


def test_blocks_are_used_in_their_order() -> None:
    weights, _ = a_stream(3, BreakableLink())
    with pytest.raises(StreamFailed, match="out of order"):
        weights.acquire(11)
    weights.close()
