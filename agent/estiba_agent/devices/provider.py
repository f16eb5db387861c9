"""What every kind of device offers: itself, as it is now."""

from __future__ import annotations

from typing import Protocol

from estiba_scheduler.domain import Device, HostLink


class DeviceProvider(Protocol):
    """One source of devices."""

    def devices(self) -> tuple[tuple[Device, ...], tuple[HostLink, ...]]:
        """The devices and the host links that they hang on, read now. May block; never raises for a sick device."""
        ...
