"""Weights that are streamed from host memory: buffers, copies over the host link, and the ring that runs ahead."""

from .buffer import allocate, held_bytes
from .spread import blocks_to_offload, offloaded_blocks
from .stream import SLOTS, StreamFailed, WeightStream
from .transfer import HostLinkTransfer, Link

__all__ = [
    "SLOTS",
    "HostLinkTransfer",
    "Link",
    "StreamFailed",
    "WeightStream",
    "allocate",
    "blocks_to_offload",
    "held_bytes",
    "offloaded_blocks",
]
