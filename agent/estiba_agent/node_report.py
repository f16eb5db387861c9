"""This machine's devices: read for the supervisor, and told to the world as a Node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from estiba_agent.devices import DeviceLedger, DeviceProvider
from estiba_scheduler.domain import Device, DeviceHealth, DeviceKind, HostLink, Node

from .config import AgentConfig
from .host_memory import host_budget_bytes, host_free_bytes
from .supervisor.events import DeviceSeen
from .supervisor.hardware import Place


@dataclass(frozen=True, slots=True)
class Reading:
    devices: tuple[Device, ...]
    links: tuple[HostLink, ...]

    def device(self, uuid: str) -> Device:
        """Raises KeyError."""
        return {device.uuid: device for device in self.devices}[uuid]

    def link_of(self, device: Device) -> HostLink | None:
        return next((link for link in self.links if link.id == device.host_link), None)


class NodeHardware:
    """All providers of this machine, read together."""

    def __init__(self, config: AgentConfig, providers: Sequence[DeviceProvider]) -> None:
        self._config = config
        self._providers = providers
        self._reading: Reading | None = None

    @property
    def reading(self) -> Reading | None:
        """The last one; None before the first."""
        return self._reading

    def look(self) -> tuple[DeviceSeen, ...]:
        """May block; called in a thread."""
        devices: list[Device] = []
        links: list[HostLink] = []
        for provider in self._providers:
            some_devices, some_links = provider.devices()
            devices += some_devices
            links += some_links
        self._reading = Reading(tuple(devices), tuple(links))
        return tuple(self._seen(device) for device in devices if device.health is not DeviceHealth.UNAVAILABLE)

    def place(self, uuid: str) -> Place:
        """Raises KeyError."""
        if self._reading is None:
            raise KeyError(uuid)
        device = self._reading.device(uuid)
        if device.kind is not DeviceKind.CPU:
            return Place(device.uuid, device.kind.value, device.memory_bytes)
        link = self._reading.link_of(device)
        return Place(
            device=device.uuid,
            kind=device.kind.value,
            memory_bytes=device.memory_bytes,
            ledger_dir=self._config.state_dir / "ledger" / device.uuid,
            link_file=self._config.state_dir / "links" / device.host_link,
            link_bytes_per_s=link.limit_bytes_per_s if link else None,
            compute_threads=device.compute_threads or 1,
        )

    def _seen(self, device: Device) -> DeviceSeen:
        holders = None
        if device.kind is DeviceKind.CPU:
            ledger_dir = self.place(device.uuid).ledger_dir
            assert ledger_dir is not None
            holders = dict(DeviceLedger(ledger_dir, device.memory_bytes).holders())
        return DeviceSeen(
            uuid=device.uuid,
            memory_bytes=device.memory_bytes,
            usable_bytes=device.usable_bytes,
            free_bytes=device.free_bytes,
            foreign_bytes=device.foreign_bytes,
            holders=holders,
        )


def node_of(
    config: AgentConfig,
    reading: Reading,
    leaks: dict[str, str],
    agent_url: str | None,
    now: float,
    free_bytes: Callable[[], int] = host_free_bytes,
) -> Node:
    """The node as it is reported. A device with a leak is not healthy, whatever its driver says."""
    devices = tuple(
        device.model_copy(update={"health": DeviceHealth.LEAKED, "detail": leaks[device.uuid]})
        if device.uuid in leaks and device.health is DeviceHealth.HEALTHY
        else device
        for device in reading.devices
    )
    return Node(
        name=config.node,
        devices=devices,
        links=reading.links,
        host_memory_bytes=host_budget_bytes(config.host_memory_bytes),
        host_free_bytes=free_bytes(),
        agent_url=agent_url,
        reported_at=now,
    )
