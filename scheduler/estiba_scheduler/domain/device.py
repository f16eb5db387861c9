"""What a node has: devices, host links, host memory and the paths weights are loaded by.

Units: bytes, seconds; a field's name carries its unit.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from .value import Value


class DeviceKind(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"


class DeviceHealth(StrEnum):
    HEALTHY = "Healthy"
    UNAVAILABLE = "Unavailable"  # the driver could not be asked, or says that the device is gone
    LEAKED = "DeviceMemoryLeaked"  # memory did not come back after a stop: nothing is placed here


class Device(Value):
    """One device that holds weights and computes (a GPU, a MIG slice, or a budgeted share of the CPU)."""

    uuid: str
    node: str
    kind: DeviceKind
    product: str
    memory_bytes: int = Field(gt=0)
    free_bytes: int | None = Field(default=None, ge=0, description="as the device itself says; None: unknown")
    foreign_bytes: int = Field(default=0, ge=0, description="held by processes that are not ours")
    reserve_bytes: int = Field(default=0, ge=0, description="kept free on purpose")
    memory_bandwidth_bytes_per_s: float | None = None
    peak_flops: dict[str, float] = Field(default_factory=dict, description="FLOP/s per dtype")
    host_link: str = Field(description="id of the HostLink that weights are streamed over")
    compute_threads: int | None = Field(default=None, description="cpu devices: threads that compute")
    numa_node: int | None = None
    mig_parent: str | None = None
    health: DeviceHealth = DeviceHealth.HEALTHY
    detail: str = ""

    @property
    def usable_bytes(self) -> int:
        """What our instances may hold together on this device."""
        return max(0, self.memory_bytes - self.foreign_bytes - self.reserve_bytes)


class HostLink(Value):
    """The path between host memory and one or more devices (a PCIe root); its users share the bandwidth."""

    id: str
    h2d_bytes_per_s: float | None = Field(default=None, description="measured; None: not measured yet")
    d2h_bytes_per_s: float | None = None
    limit_bytes_per_s: float | None = Field(default=None, description="a rate set on purpose (cpu devices)")

    @property
    def bandwidth_bytes_per_s(self) -> float | None:
        """The smaller of the measured and the configured host-to-device rate, None where neither is known."""
        known = [b for b in (self.h2d_bytes_per_s, self.limit_bytes_per_s) if b]
        return min(known) if known else None


class LoadPath(Value):
    """Where weights are read from, and how fast: `page_cache`, `disk`, `network`."""

    name: str
    bytes_per_s: float


class Node(Value):
    """One machine, as its agent last reported it."""

    name: str
    devices: tuple[Device, ...] = ()
    links: tuple[HostLink, ...] = ()
    load_paths: tuple[LoadPath, ...] = ()
    host_memory_bytes: int = Field(ge=0, description="one budget for sleepers and offloaded weights")
    host_free_bytes: int | None = None
    agent_url: str | None = Field(default=None, description="the agent's metrics API")
    reported_at: float = Field(description="seconds since the epoch")

    def device(self, uuid: str) -> Device | None:
        return next((d for d in self.devices if d.uuid == uuid), None)

    def link_of(self, device: Device) -> HostLink | None:
        return next((link for link in self.links if link.id == device.host_link), None)
