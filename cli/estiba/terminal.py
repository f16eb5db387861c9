"""How wide we print."""

from __future__ import annotations

import sys

from rich.console import Console

PLAIN_WIDTH = 160
"""Of tables where no terminal sets a width: in a file, a pipe, CI."""
LEAST_WIDTH = 112
"""A narrower terminal wraps lines rather than hide columns."""


def console(stderr: bool = False) -> Console:
    """As wide as the terminal, and as tables need where there is none or it is narrow."""
    stream = sys.stderr if stderr else sys.stdout
    if not stream.isatty():
        return Console(stderr=stderr, width=PLAIN_WIDTH)
    found = Console(stderr=stderr)
    return found if found.width >= LEAST_WIDTH else Console(stderr=stderr, width=LEAST_WIDTH)
