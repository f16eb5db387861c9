"""What NVML says about each GPU, as plain values: the one place that calls the library."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

log = logging.getLogger(__name__)


class NvmlUnavailable(Exception):
    """No driver, no library, or it does not answer; `str()` says which."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU or MIG slice. `error`: it did not answer, and the figures mean nothing."""

    uuid: str
    product: str = "unknown"
    memory_bytes: int = 0
    free_bytes: int | None = None
    processes: tuple[tuple[int, int], ...] = ()
    """(pid, bytes) of those whose memory is told."""
    pci_bus: str = ""
    numa_node: int | None = None
    mig_parent: str | None = None
    error: str = ""


class Nvml(Protocol):
    def readings(self) -> tuple[GpuReading, ...]:
        """Raises NvmlUnavailable. MIG slices stand for their parent."""
        ...


class NvmlLibrary:
    """The real one. It is initialised anew for every reading, so that a driver that was restarted is met again."""

    def readings(self) -> tuple[GpuReading, ...]:
        try:
            import pynvml
        except ImportError as error:
            raise NvmlUnavailable("the package nvidia-ml-py is not installed") from error
        try:
            pynvml.nvmlInit()
        except (pynvml.NVMLError, OSError) as error:
            raise NvmlUnavailable(f"NVML does not answer: {error}") from error
        try:
            found: list[GpuReading] = []
            for index in range(pynvml.nvmlDeviceGetCount()):
                found += _gpu(pynvml, index)
            return tuple(found)
        except pynvml.NVMLError as error:
            raise NvmlUnavailable(f"NVML does not answer: {error}") from error
        finally:
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> Iterator[GpuReading]:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
    except nvml.NVMLError as error:
        log.error("GPU %d does not answer: %s", index, error)
        yield GpuReading(uuid=f"gpu-index-{index}", error=str(error))
        return
    slices = list(_slices(nvml, handle))
    try:
        bus = _text(nvml.nvmlDeviceGetPciInfo(handle).busId)
        numa = _optional(nvml, "nvmlDeviceGetNumaNodeId", handle)
        for each in slices or [handle]:
            memory = nvml.nvmlDeviceGetMemoryInfo(each)
            yield GpuReading(
                uuid=_text(nvml.nvmlDeviceGetUUID(each)),
                product=_text(nvml.nvmlDeviceGetName(each)),
                memory_bytes=int(memory.total),
                free_bytes=int(memory.free),
                processes=tuple(_processes(nvml, each)),
                pci_bus=bus,
                numa_node=numa,
                mig_parent=uuid if slices else None,
            )
    except nvml.NVMLError as error:
        log.error("GPU %s does not answer: %s", uuid, error)
        yield GpuReading(uuid=uuid, error=str(error))


def _slices(nvml: Any, handle: Any) -> Iterator[Any]:
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
        if current != nvml.NVML_DEVICE_MIG_ENABLE:
            return
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except nvml.NVMLError:
        return  # a GPU that has no MIG
    for number in range(count):
        with contextlib.suppress(nvml.NVMLError):  # places with no slice
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)


def _processes(nvml: Any, handle: Any) -> Iterator[tuple[int, int]]:
    try:
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError as error:
        log.debug("processes on a GPU can't be listed: %s", error)
        return
    for process in running:
        if process.usedGpuMemory is not None:
            yield int(process.pid), int(process.usedGpuMemory)


def _optional(nvml: Any, call: str, handle: Any) -> int | None:
    try:
        return int(getattr(nvml, call)(handle))
    except (AttributeError, nvml.NVMLError):
        return None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
