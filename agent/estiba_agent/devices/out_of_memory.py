"""More device memory was asked for than may be had."""

from __future__ import annotations


class DeviceOutOfMemory(Exception):
    """Over the account's own budget, or the device is full; `str()` has the numbers. Nothing was taken."""
