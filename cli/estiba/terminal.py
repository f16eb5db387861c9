"""How wide we print."""

from __future__ import annotations

import os
import sys

from rich.console import Console

PLAIN_WIDTH = 160
"""Of tables where no terminal sets a width: in a file, a pipe, CI."""


def console(stderr: bool = False) -> Console:
    """As wide as the terminal, or as COLUMNS says; as wide as tables need where there is neither."""
    stream = sys.stderr if stderr else sys.stdout
    if stream.isatty() or "COLUMNS" in os.environ:
        return Console(stderr=stderr)
    return Console(stderr=stderr, width=PLAIN_WIDTH)
