"""Numbers as a person reads them, for the sentences of decisions."""

from __future__ import annotations

_UNITS = (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024))


def size(n_bytes: float) -> str:
    """`15.2 GiB`, `312 MiB`, `0 MiB`."""
    for unit, scale in _UNITS:
        if abs(n_bytes) >= scale:
            value = n_bytes / scale
            return f"{value:.1f} {unit}" if value < 10 or unit == "GiB" else f"{value:.0f} {unit}"
    return "0 MiB" if n_bytes == 0 else f"{n_bytes:.0f} B"


def span(seconds: float) -> str:
    """`58 ms`, `8.4 s`, `312 s`."""
    if abs(seconds) < 0.1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if abs(seconds) < 100 else f"{seconds:.0f} s"


def share(fraction: float) -> str:
    """`73 %`."""
    return f"{fraction * 100:.0f} %"


def short(deployment: str) -> str:
    """A deployment's name without the default namespace."""
    return deployment.removeprefix("default/")


def names(deployments: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    known = [short(d) for d in deployments]
    return known[0] if len(known) == 1 else f"{', '.join(known[:-1])} and {known[-1]}"
