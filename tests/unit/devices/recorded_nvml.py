"""NVML's answers, made up: no GPU is here to record them from."""

from __future__ import annotations

from estiba_agent.devices.nvml_readings import GpuReading, NvmlUnavailable
from tests.builders import GIB


class RecordedNvml:
    """Gives what the test puts in; `broken`: it does not answer at all."""

    def __init__(self, *readings: GpuReading) -> None:
        self.gpus = list(readings)
        self.broken = ""

    def readings(self) -> tuple[GpuReading, ...]:
        if self.broken:
            raise NvmlUnavailable(self.broken)
        return tuple(self.gpus)


def a_gpu(uuid: str = "GPU-0", **changes: object) -> GpuReading:
    fields: dict[str, object] = {
        "uuid": uuid,
        "product": "NVIDIA Test 24GB",
        "memory_bytes": 24 * GIB,
        "free_bytes": 20 * GIB,
        "pci_bus": "0000:01:00.0",
        "numa_node": 0,
    }
    return GpuReading(**fields | changes)  # type: ignore[arg-type]
