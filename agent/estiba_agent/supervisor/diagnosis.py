"""From an engine's end, or its last words, to a reason that the planner knows and a sentence for a person."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from estiba_scheduler.domain import Reason

LAST_WORDS = re.compile(r"failed: (?P<reason>[A-Za-z]+): (?P<message>.*)")
OUT_OF_MEMORY = re.compile(r"DeviceOutOfMemory|OutOfMemoryError|out of memory|MemoryError|Cannot allocate memory", re.I)
KNOWN = frozenset({Reason.OUT_OF_MEMORY, Reason.BAD_MODEL})


def of_words(reason: str, message: str) -> tuple[Reason, str]:
    """For what an engine says of itself: its own reason when the planner acts on it, else in the sentence."""
    if reason in KNOWN:
        return Reason(reason), message or "no message"
    if reason == Reason.INSUFFICIENT_MEMORY:
        return Reason.OUT_OF_MEMORY, message
    return Reason.ENGINE_EXITED, f"{reason or 'Failed'}: {message or 'no message'}"


def of_exit(code: int | None, log_tail: Sequence[str]) -> tuple[Reason, str]:
    """For a process that ended unasked."""
    how = _how(code)
    for line in reversed(log_tail):
        words = LAST_WORDS.search(line)
        if words:
            return of_words(words["reason"], words["message"])
    for line in reversed(log_tail):
        if OUT_OF_MEMORY.search(line):
            return Reason.OUT_OF_MEMORY, f"{how}: {line.strip()}"
    last = next((line.strip() for line in reversed(log_tail) if line.strip()), "")
    return Reason.ENGINE_EXITED, f"{how}; its last line: {last}" if last else f"{how} without a word in its log"


def _how(code: int | None) -> str:
    if code is None:
        return "its process ended"
    if code >= 0:
        return f"its process ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = " (the system may have run out of memory)" if name == "SIGKILL" else ""
    return f"its process was ended by {name}{hint}"
