"""Devices that hold weights and compute, the memory of the cpu one, and the links that weights are copied over."""

from .cpu import CpuProvider
from .ledger import DeviceAccount, DeviceLedger
from .link_clock import HostLinkClock
from .nvml import NvmlProvider
from .out_of_memory import DeviceOutOfMemory
from .provider import DeviceProvider
from .request import DeviceRequest, parse_device

__all__ = [
    "CpuProvider",
    "DeviceAccount",
    "DeviceLedger",
    "DeviceOutOfMemory",
    "DeviceProvider",
    "DeviceRequest",
    "HostLinkClock",
    "NvmlProvider",
    "parse_device",
]
