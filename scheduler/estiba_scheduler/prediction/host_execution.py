"""First-order model of running offloaded layers on the host instead of streaming them (as llama.cpp does)."""

from __future__ import annotations


def slowdown(device_fraction: float, host_to_device_ratio: float) -> float:
    """Decode time relative to all layers on the device: `g + k (1 - g)`; steep next to g = 1.

    `host_to_device_ratio` is the time of a layer on the host over its time on the device.
    """
    return device_fraction + host_to_device_ratio * (1.0 - device_fraction)


def ratio_from(device_fraction: float, relative_speed: float) -> float:
    """The layer time ratio k that explains a relative decode speed (1 = fully resident) seen at one fraction."""
    return (1.0 / relative_speed - device_fraction) / (1.0 - device_fraction)
