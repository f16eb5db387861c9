"""Dividing a device's bytes among the instances on it: to each its least, then to where they buy the most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .allotment import Allotment, Item, Option

NOTHING = 1e-12
"""Weighted seconds per second that count as no gain."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """The least that everyone needs does not fit: by how much, and of which memory."""

    device_bytes: int = 0
    host_bytes: int = 0


def divide(items: Sequence[Item], device_room: int, host_room: int) -> dict[str, Allotment] | Shortage:
    """Allotments by item key, never more than the room in sum; or the shortage.

    1. Everyone gets the least that its policies allow and the KV cache of one full sequence.
    2. The best step in weighted seconds saved per byte is taken, again and again (steps of the lower convex hull
       of each item's options, so that the order is right for curves with a knee; a greedy of the continuous
       knapsack, at most one step per item from its optimum).
    3. What is left goes to KV cache, evenly, and then to full residency where that buys nothing now but spares
       the link and host memory.
    """
    order = sorted(items, key=lambda i: (-i.worth, i.key))
    chosen = {i.key: 0 for i in order}
    room = device_room - sum(i.options[0].base_bytes for i in order)
    if room < 0:
        return Shortage(device_bytes=-room)
    host = host_room - sum(i.options[0].host_bytes for i in order)
    for item in order:  # offloading is limited by host memory: keep more on the device where it would not fit
        while host < 0 and chosen[item.key] + 1 < len(item.options):
            old, new = item.options[chosen[item.key]], item.options[chosen[item.key] + 1]
            if new.base_bytes - old.base_bytes > room:
                break
            room -= new.base_bytes - old.base_bytes
            host += old.host_bytes - new.host_bytes
            chosen[item.key] += 1
    if host < 0:
        return Shortage(host_bytes=-host)
    room = _where_they_buy_most(order, chosen, room)
    kv, room = _kv_cache(order, room)
    for item in order:
        _, room = _furthest(item, chosen, room)
    return {i.key: i.allot(i.options[chosen[i.key]], kv[i.key]) for i in order}


def _where_they_buy_most(order: list[Item], chosen: dict[str, int], room: int) -> int:
    steps = []
    for rank, item in enumerate(order):
        for gain, target in _hull(item.options, chosen[item.key]):
            steps.append((-gain, rank, target))
    full: set[str] = set()
    for _, rank, target in sorted(steps):
        item = order[rank]
        if item.key in full:
            continue
        # The step may no longer fit: then as far as it does, and no further with this item.
        reached, room = _furthest(item, chosen, room, target)
        if reached < target:
            full.add(item.key)
    return room


def _hull(options: Sequence[Option], start: int) -> list[tuple[float, int]]:
    """Steps (gain per byte, target index) from `start` up the convex hull; gains fall and are all positive."""
    steps = []
    at = start
    while at + 1 < len(options):
        rates = [
            ((options[at].loss - o.loss) / (o.base_bytes - options[at].base_bytes), -k)
            for k, o in enumerate(options[at + 1 :], start=at + 1)
        ]
        rate, negative = max(rates)
        if rate <= NOTHING / max(1, options[-1].base_bytes):
            break
        steps.append((rate, -negative))
        at = -negative
    return steps


def _furthest(item: Item, chosen: dict[str, int], room: int, target: int | None = None) -> tuple[int, int]:
    """Move an item up to `target` (or its last option), as far as the room goes. Returns (index, room left)."""
    at = chosen[item.key]
    last = len(item.options) - 1 if target is None else target
    for k in range(last, at, -1):
        extra = item.options[k].base_bytes - item.options[at].base_bytes
        if extra <= room:
            chosen[item.key] = k
            return k, room - extra
    return at, room


def _kv_cache(order: list[Item], room: int) -> tuple[dict[str, int], int]:
    """KV budgets: the floor, and an even share of the room up to what is wanted, in whole tokens."""
    kv = {i.key: i.kv_floor for i in order}
    hungry = [i for i in order if i.kv_want > i.kv_floor]
    while hungry:
        even = room // len(hungry)
        sated = [i for i in hungry if _charge(i, i.kv_want - kv[i.key]) <= even]
        for item in sated or hungry:
            token = max(1, item.footprint.kv_bytes_per_token)
            extra = item.kv_want - kv[item.key] if sated else int(even / item.factor) // token * token
            kv[item.key] += max(0, extra)
            room -= _charge(item, max(0, extra))
        if not sated:
            break
        hungry = [i for i in hungry if i not in sated]
    return kv, room


def _charge(item: Item, kv_bytes: int) -> int:
    return int(kv_bytes * item.factor) + (1 if item.factor != 1.0 and kv_bytes else 0)
