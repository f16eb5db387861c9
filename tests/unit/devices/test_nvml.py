from __future__ import annotations

import logging
import sys
import types
from pathlib import Path

import pytest

from estiba_agent.devices.nvml import NvmlProvider
from estiba_agent.devices.nvml_readings import NvmlLibrary, NvmlUnavailable
from estiba_scheduler.domain import Device, DeviceHealth, DeviceKind
from tests.builders import GIB

from .recorded_nvml import RecordedNvml, a_gpu


def devices_of(provider: NvmlProvider) -> list[Device]:
    return list(provider.devices()[0])


def test_a_gpu_is_told_by_its_uuid_with_its_memory_and_its_link() -> None:
    (gpu,), (link,) = NvmlProvider("n1", RecordedNvml(a_gpu())).devices()
    assert (gpu.uuid, gpu.node, gpu.kind, gpu.product) == ("GPU-0", "n1", DeviceKind.CUDA, "NVIDIA Test 24GB")
    assert (gpu.memory_bytes, gpu.free_bytes, gpu.foreign_bytes) == (24 * GIB, 20 * GIB, 0)
    assert gpu.health is DeviceHealth.HEALTHY
    assert gpu.host_link == link.id == "pci-0000:01:00.0"
    assert link.limit_bytes_per_s is None, "nothing is made up about a link that was not measured"


def test_memory_of_processes_that_are_not_our_engines_is_foreign() -> None:
    nvml = RecordedNvml(a_gpu(processes=((100, 3 * GIB), (200, 1 * GIB))))
    (gpu,) = devices_of(NvmlProvider("n1", nvml, is_ours=lambda pid: pid == 100))
    assert gpu.foreign_bytes == 1 * GIB


def test_slices_of_one_gpu_are_devices_that_share_its_link() -> None:
    slices = [a_gpu(f"MIG-{n}", memory_bytes=10 * GIB, mig_parent="GPU-0") for n in (1, 2)]
    found, links = NvmlProvider("n1", RecordedNvml(*slices)).devices()
    assert [d.mig_parent for d in found] == ["GPU-0", "GPU-0"]
    assert len({d.host_link for d in found}) == 1
    assert len(links) == 1


def test_a_gpu_that_falls_off_the_bus_stays_known_as_unavailable_and_comes_back() -> None:
    nvml = RecordedNvml(a_gpu("GPU-0"), a_gpu("GPU-1", pci_bus="0000:02:00.0"))
    provider = NvmlProvider("n1", nvml)
    devices_of(provider)
    for gone in ([a_gpu("GPU-0")], [a_gpu("GPU-0"), a_gpu("GPU-1", error="GPU is lost", memory_bytes=0)]):
        nvml.gpus = gone
        well, ill = devices_of(provider)
        assert well.health is DeviceHealth.HEALTHY
        assert (ill.uuid, ill.health, ill.free_bytes) == ("GPU-1", DeviceHealth.UNAVAILABLE, None)
        assert ill.detail
        assert ill.memory_bytes == 24 * GIB, "the plan needs to know what is missing"
    nvml.gpus = [a_gpu("GPU-0"), a_gpu("GPU-1")]
    assert {d.health for d in devices_of(provider)} == {DeviceHealth.HEALTHY}


def test_a_gpu_whose_memory_was_never_known_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    provider = NvmlProvider("n1", RecordedNvml(a_gpu("GPU-9", memory_bytes=0)))
    with caplog.at_level(logging.ERROR):
        assert devices_of(provider) == []
    assert "GPU GPU-9 is left out, its memory is not known" in caplog.text


def test_a_driver_that_does_not_answer_is_told_once_and_makes_all_unavailable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nvml = RecordedNvml(a_gpu())
    provider = NvmlProvider("n1", nvml)
    devices_of(provider)
    nvml.broken = "driver/library version mismatch"
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            (gpu,) = devices_of(provider)
    assert gpu.health is DeviceHealth.UNAVAILABLE
    assert gpu.detail == "driver/library version mismatch"
    assert [r.message for r in caplog.records] == ["no GPU can be used: driver/library version mismatch"]


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="a driver is here")
def test_without_a_driver_the_real_library_says_so() -> None:
    """No GPU is here: the one thing of the real binding that can be tried without one."""
    with pytest.raises(NvmlUnavailable, match=r"NVML does not answer|not installed"):
        NvmlLibrary().readings()


def test_what_the_binding_answers_becomes_a_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", scripted_binding())
    (reading,) = NvmlLibrary().readings()
    assert reading.uuid == "GPU-1"
    assert reading.product == "Test GPU"
    assert (reading.memory_bytes, reading.free_bytes) == (8 * GIB, 3 * GIB)
    assert reading.processes == ((42, 5 * GIB),), "a process whose memory is not told is not counted as 0 or -1"
    assert reading.pci_bus == "0000:0A:00.0"
    assert reading.numa_node is None
    assert reading.mig_parent is None


def scripted_binding() -> types.ModuleType:
    """As much of nvidia-ml-py as is called, with bytes where older versions give bytes."""
    nvml = types.ModuleType("pynvml")

    class NVMLError(Exception):
        pass

    def no_mig(_: object) -> None:
        raise NVMLError("Not Supported")

    def nothing(*_: object) -> None:
        return None

    answers: dict[str, object] = {
        "NVMLError": NVMLError,
        "NVML_DEVICE_MIG_ENABLE": 1,
        "nvmlInit": nothing,
        "nvmlShutdown": nothing,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: b"GPU-1",
        "nvmlDeviceGetName": lambda handle: "Test GPU",
        "nvmlDeviceGetMigMode": no_mig,
        "nvmlDeviceGetPciInfo": lambda handle: types.SimpleNamespace(busId=b"0000:0A:00.0"),
        "nvmlDeviceGetMemoryInfo": lambda handle: types.SimpleNamespace(total=8 * GIB, free=3 * GIB),
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: [
            types.SimpleNamespace(pid=42, usedGpuMemory=5 * GIB),
            types.SimpleNamespace(pid=43, usedGpuMemory=None),
        ],
    }
    for name, value in answers.items():
        setattr(nvml, name, value)
    return nvml
