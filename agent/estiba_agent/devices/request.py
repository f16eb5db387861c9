"""How a person names a device: `cpu:memory=700MiB,link=1GiB/s,threads=1,reserve=0`, or `nvml`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from estiba_scheduler.quantities import parse_bytes, parse_rate

KINDS = ("cpu", "nvml")
EXAMPLE = "cpu:memory=700MiB,link=1GiB/s,threads=1"
MOST_THREADS = 1024


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """`memory_bytes` None: a share of the machine's. `link_bytes_per_s` None: as fast as memory copies."""

    kind: str
    memory_bytes: int | None = None
    link_bytes_per_s: float | None = None
    threads: int = 1
    reserve_bytes: int = 0


def parse_device(text: str) -> DeviceRequest:
    """Raises ValueError with the part that can't be understood, and how to write it."""
    kind, colon, rest = text.strip().partition(":")
    if kind not in KINDS:
        raise ValueError(f"device {text!r}: the kind {kind!r} is not known; write {EXAMPLE} or nvml")
    if kind == "nvml" and colon:
        raise ValueError(f"device {text!r}: nvml takes no options; write nvml")
    if colon and not rest:
        raise ValueError(f"device {text!r}: nothing follows the colon; write for example {EXAMPLE}")
    values: dict[str, int | float] = {}
    for part in rest.split(",") if rest else []:
        name, equals, value = part.strip().partition("=")
        if name not in OPTIONS or not equals:
            raise ValueError(f"device {text!r}: the option {part!r} is not known; there are {', '.join(OPTIONS)}")
        field, read = OPTIONS[name]
        if field in values:
            raise ValueError(f"device {text!r}: {name} is given twice")
        try:
            values[field] = read(value)
        except ValueError as error:
            raise ValueError(f"device {text!r}: {name}: {error}") from error
    request = DeviceRequest(kind, **values)  # type: ignore[arg-type]
    if request.memory_bytes is not None and request.reserve_bytes >= request.memory_bytes:
        raise ValueError(f"device {text!r}: the reserve leaves no memory; make it smaller than memory")
    return request


def _memory(text: str) -> int:
    count = parse_bytes(text)
    if count == 0:
        raise ValueError("a device without memory holds nothing; write for example 700MiB")
    return count


def _threads(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:6]) <= MOST_THREADS:
        raise ValueError(f"{text!r} is not a number of threads (1 to {MOST_THREADS})")
    return int(text)


OPTIONS: dict[str, tuple[str, Callable[[str], int | float]]] = {
    "memory": ("memory_bytes", _memory),
    "link": ("link_bytes_per_s", parse_rate),
    "threads": ("threads", _threads),
    "reserve": ("reserve_bytes", parse_bytes),
}
