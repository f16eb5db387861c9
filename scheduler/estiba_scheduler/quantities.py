"""Bytes, rates and seconds as people write and read them. As in Kubernetes, `KiB`/`Ki` are 1024 and `KB`/`K` 1000."""

from __future__ import annotations

import math
import re

BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_FACTORS = BINARY | DECIMAL
_QUANTITY = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z]*?)(?P<b>[Bb]?)\s*", re.ASCII)
_LONGEST = 64
LARGEST_BYTES = 2**60


def parse_bytes(text: str | int) -> int:
    """A number of bytes from `700MiB`, `1.5Gi`, `24G` or a plain integer.

    Raises ValueError with the text and how to write it.
    """
    if isinstance(text, bool) or not isinstance(text, (str, int)):
        raise ValueError(f"{text!r} is not an amount of memory; write for example 700MiB, 1.5GiB or 24G")
    if isinstance(text, int):
        return _checked(text, text)
    shown = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise ValueError(f"{shown!r} is not an amount of memory; write for example 700MiB, 1.5GiB or 24G")
    unit = match["unit"]
    factor = _FACTORS.get(unit.lower())
    if factor is None or unit == "m":  # Kubernetes' `m` is a thousandth: nobody means that of bytes
        hint = _meant(match["number"], unit)
        raise ValueError(f"{shown!r} has no unit of memory that is known; {hint}")
    return _checked(
        math.floor(float(match["number"]) * factor + 0.5) if "." in match["number"] else int(match["number"]) * factor,
        shown,
    )


def parse_rate(text: str) -> float:
    """Bytes per second from `1GiB/s`. Raises ValueError with the text and how to write it."""
    amount, slash, per = text.partition("/")
    if not slash or per.strip().lower() not in ("s", "sec"):
        raise ValueError(f"{text[:_LONGEST]!r} is not a rate; write for example 1GiB/s or 800MB/s")
    rate = float(parse_bytes(amount))
    if rate <= 0:
        raise ValueError(f"{text!r}: a rate must be more than nothing; write for example 1GiB/s")
    return rate


def format_bytes(count: float) -> str:
    """`257 MiB`, `1.46 GiB`, `512 B`: three digits at most."""
    sign, size = ("-" if count < 0 else ""), abs(float(count))
    for unit, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor * 0.9995:
            return f"{sign}{_three_digits(size / factor)} {unit}"
    return f"{sign}{size:.0f} B"


def format_seconds(seconds: float) -> str:
    """`43 ms`, `1.2 s`, `5 min 12 s`, `2 h 3 min`."""
    if math.isinf(seconds):
        return "for ever"
    sign, size = ("-" if seconds < 0 else ""), abs(seconds)
    if size < 0.9995:
        return f"{sign}{_three_digits(size * 1000)} ms"
    if size < 119.5:
        return f"{sign}{_three_digits(size) if size < 99.5 else f'{size:.0f}'} s"
    if size < 7199.5:
        minutes, rest = divmod(round(size), 60)
        return f"{sign}{minutes} min" + (f" {rest} s" if rest else "")
    hours, rest = divmod(round(size / 60), 60)
    return f"{sign}{hours} h" + (f" {rest} min" if rest else "")


def _three_digits(number: float) -> str:
    decimals = 0 if number >= 99.95 else 1 if number >= 9.995 else 2
    text = f"{number:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _meant(number: str, unit: str) -> str:
    first = unit[:1].upper()
    if first and first.lower() in DECIMAL:
        return f"write {number}{first}iB"
    return "write KiB, MiB, GiB or TiB (1024), or K, M, G or T (1000)"


def _checked(count: int, shown: object) -> int:
    if not 0 <= count <= LARGEST_BYTES:
        raise ValueError(f"{shown!r} is not an amount of memory that a machine has (0 to {LARGEST_BYTES} bytes)")
    return count
