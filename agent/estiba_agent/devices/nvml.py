"""GPUs as NVML tells them. Written against recorded answers; not tried on a real GPU yet."""

from __future__ import annotations

import logging
from collections.abc import Callable

import psutil

from estiba_scheduler.domain import Device, DeviceHealth, DeviceKind, HostLink

from .nvml_readings import GpuReading, Nvml, NvmlLibrary, NvmlUnavailable

log = logging.getLogger(__name__)

ENGINE_MODULE = "estiba_agent.engines"


class NvmlProvider:
    """Every GPU and MIG slice. A GPU that was seen and does not answer any more is reported as unavailable."""

    def __init__(self, node: str, nvml: Nvml | None = None, is_ours: Callable[[int], bool] | None = None) -> None:
        self._node = node
        self._nvml = nvml or NvmlLibrary()
        self._is_ours = is_ours or _is_engine
        self._known: dict[str, Device] = {}
        self._complaint = ""

    def devices(self) -> tuple[tuple[Device, ...], tuple[HostLink, ...]]:
        try:
            readings = self._nvml.readings()
            self._complaint = ""
        except NvmlUnavailable as error:
            if str(error) != self._complaint:
                log.error("no GPU can be used: %s", error)
                self._complaint = str(error)
            return self._all_unavailable(str(error)), self._links()
        fresh = {device.uuid: device for reading in readings if (device := self._device(reading)) is not None}
        for uuid, device in self._known.items():
            if uuid not in fresh:
                fresh[uuid] = _unavailable(device, "it is not listed any more")
        self._known |= {uuid: device for uuid, device in fresh.items() if device.health is DeviceHealth.HEALTHY}
        return tuple(fresh[uuid] for uuid in sorted(fresh)), self._links()

    def _device(self, reading: GpuReading) -> Device | None:
        known = self._known.get(reading.uuid)
        if reading.error or reading.memory_bytes <= 0:
            why = reading.error or "it says that it has no memory"
            if known is None:
                log.error("GPU %s is left out, its memory is not known: %s", reading.uuid, why)
            return _unavailable(known, why) if known is not None else None
        foreign = sum(held for pid, held in reading.processes if not self._is_ours(pid))
        return Device(
            uuid=reading.uuid,
            node=self._node,
            kind=DeviceKind.CUDA,
            product=reading.product,
            memory_bytes=reading.memory_bytes,
            free_bytes=reading.free_bytes,
            foreign_bytes=foreign,
            host_link=_link_of(reading),
            numa_node=reading.numa_node,
            mig_parent=reading.mig_parent,
        )

    def _all_unavailable(self, why: str) -> tuple[Device, ...]:
        return tuple(_unavailable(device, why) for _, device in sorted(self._known.items()))

    def _links(self) -> tuple[HostLink, ...]:
        return tuple(HostLink(id=link) for link in sorted({device.host_link for device in self._known.values()}))


def _unavailable(device: Device, why: str) -> Device:
    return device.model_copy(update={"health": DeviceHealth.UNAVAILABLE, "detail": why, "free_bytes": None})


def _link_of(reading: GpuReading) -> str:
    """Slices of one GPU share its link; which GPUs share a PCIe root is not read yet."""
    return f"pci-{reading.pci_bus or reading.mig_parent or reading.uuid}"


def _is_engine(pid: int) -> bool:
    try:
        return any(ENGINE_MODULE in word for word in psutil.Process(pid).cmdline())
    except psutil.Error:
        return False
