"""Small pictures for a terminal: a curve with points on it, and bars. Plain text; no colour is needed to read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille cell, by row and column."""
BRAILLE = 0x2800
EIGHTHS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True, slots=True)
class Points:
    mark: str
    at: Sequence[tuple[float, float]]


def curve(
    line: Callable[[float], float],
    points: Sequence[Points],
    label: Callable[[float], str],
    upright: float | None = None,
    width: int = 60,
    height: int = 14,
    plain: bool = False,
) -> list[str]:
    """`line` over x from 0 to 1 and points over it, y from 0; `upright` marks an x. `plain`: ASCII only."""
    top = 1.05 * max([line(0.0), line(1.0), *(y for marks in points for _, y in marks.at)])
    cells = [[0] * width for _ in range(height)]
    for column in range(2 * width):
        at = min(4 * height - 1, int(line((column + 0.5) / (2 * width)) / top * 4 * height))
        down, dot = divmod(4 * height - 1 - at, 4)
        cells[down][column // 2] |= DOTS[dot][column % 2]
    blank, stroke = (" ", "|") if plain else (" ", "┆")
    text = [[(("." if plain else chr(BRAILLE + bits)) if bits else blank) for bits in row] for row in cells]
    if upright is not None:
        column = _place(upright, 1.0, width)
        for shown in text:
            shown[column] = stroke if shown[column] == blank else shown[column]
    for marks in points:
        for x, y in marks.at:
            text[height - 1 - _place(y, top, height)][_place(x, 1.0, width)] = marks.mark
    margin = max(len(label(top)), len(label(0.0)))
    ticks = {0: label(top), height // 2: label(top * (1 - height // 2 / height))}
    side, corner, base = ("|", "+", "-") if plain else ("│", "└", "─")
    lines = [f"{ticks.get(i, ''):>{margin}} {side}{''.join(row)}".rstrip() for i, row in enumerate(text)]
    lines.append(f"{label(0.0):>{margin}} {corner}{base * width}")
    feet = [" "] * (width + 4)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        foot, start = f"{share:.0%}", _place(share, 1.0, width)
        feet[start : start + len(foot)] = foot
    lines.append(" " * (margin + 2) + "".join(feet).rstrip())
    return lines


def bar(value: float, most: float, width: int = 36, plain: bool = False) -> str:
    """A bar of at most `width` cells; something to see for every value above nothing."""
    eighths = round(8 * width * value / most) if most > 0 else 0
    if value > 0:
        eighths = max(1, eighths)
    if plain:
        return "#" * max(1 if value > 0 else 0, round(eighths / 8))
    return EIGHTHS[8] * (eighths // 8) + (EIGHTHS[eighths % 8] if eighths % 8 else "")


def _place(value: float, most: float, cells: int) -> int:
    return max(0, min(cells - 1, int(value / most * cells)))
