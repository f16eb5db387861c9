"""One line per request: what state it met, what was done, and how it went."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from estiba_scheduler.quantities import format_seconds

from .chat_probe import Answer

NOTHING = "–"


def request_table(answers: Sequence[tuple[str, Answer]]) -> Table:
    """In the order in which they were sent; the first of each pair says why it was."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="requests", title_justify="left")
    for column in ("MODEL", "WHY", "MET", "DONE", "HELD", "TTFT", "TPOT", "TOKENS", "INSTANCE", "END"):
        table.add_column(column, no_wrap=column != "WHY")
    for why, answer in sorted(answers, key=lambda pair: pair[1].sent_at):
        table.add_row(
            answer.model,
            why,
            answer.met_state or NOTHING,
            "answered" if answer.held_s < 0.05 else "held, then answered",
            format_seconds(answer.held_s),
            NOTHING if answer.ttft_s is None else format_seconds(answer.ttft_s),
            NOTHING if answer.tpot_s is None else format_seconds(answer.tpot_s),
            str(answer.tokens),
            answer.instance,
            answer.finish_reason if answer.ok else f"failed: {answer.error}",
        )
    return table
