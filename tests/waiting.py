"""Waiting for a condition with a deadline: the one way tests wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], deadline_s: float, what: str = "") -> T:
    """Return the first truthy value of `condition`, or fail after `deadline_s` seconds with the last value seen."""
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not so after {deadline_s} s: {what or condition}; last seen: {value!r}")
        time.sleep(0.02)


async def until_async(condition: Callable[[], Awaitable[T]], deadline_s: float, what: str = "") -> T:
    """`until` for a coroutine function."""
    end = time.monotonic() + deadline_s
    while True:
        value = await condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not so after {deadline_s} s: {what or condition}; last seen: {value!r}")
        await asyncio.sleep(0.02)
