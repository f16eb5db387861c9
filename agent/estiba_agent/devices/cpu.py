"""The cpu device: a byte budget on this machine's memory, real weights, real compute, copies that may have a rate."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

import psutil

from estiba_scheduler.domain import Device, DeviceKind, HostLink
from estiba_scheduler.quantities import format_bytes

from .ledger import DeviceLedger
from .request import DeviceRequest

DEFAULT_SHARE = 0.5
"""Of the machine's memory, where a request names none."""


class CpuProvider:
    """One device per request: `cpu-0`, `cpu-1`, ... with a host link each. Its ledgers lie in `state_dir`."""

    def __init__(self, node: str, requests: Sequence[DeviceRequest], state_dir: Path) -> None:
        self._node = node
        self._requests = tuple(requests)
        self._state_dir = state_dir

    def devices(self) -> tuple[tuple[Device, ...], tuple[HostLink, ...]]:
        devices = tuple(self._device(number, request) for number, request in enumerate(self._requests))
        links = tuple(
            HostLink(id=_link_of(number), limit_bytes_per_s=request.link_bytes_per_s)
            for number, request in enumerate(self._requests)
        )
        return devices, links

    def _device(self, number: int, request: DeviceRequest) -> Device:
        uuid = f"cpu-{number}"
        memory = request.memory_bytes or int(psutil.virtual_memory().total * DEFAULT_SHARE)
        ledger = DeviceLedger(self._state_dir / "ledger" / uuid, memory)
        return Device(
            uuid=uuid,
            node=self._node,
            kind=DeviceKind.CPU,
            product=product_of(request),
            memory_bytes=memory,
            free_bytes=max(0, ledger.free_bytes()),
            reserve_bytes=request.reserve_bytes,
            host_link=_link_of(number),
            compute_threads=request.threads,
        )


def product_of(request: DeviceRequest) -> str:
    """What a profile holds for: the processor's kind, the threads that compute, the link's rate. Not the memory."""
    link = request.link_bytes_per_s
    rate = f"-link{format_bytes(link).replace(' ', '')}/s" if link else ""
    return f"cpu-{platform.machine() or 'unknown'}-{request.threads}t{rate}"


def _link_of(number: int) -> str:
    return f"host-{number}"
