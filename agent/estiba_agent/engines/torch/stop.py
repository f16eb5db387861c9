"""Stop strings: where an answer ends, without ever showing a piece of the stop string."""

from __future__ import annotations


class StopScanner:
    """Holds back the shortest tail that may still become a stop string."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """Take new text; return what may be shown. Sets `stopped` once a stop string is complete."""
        if self.stopped:
            return ""
        if not self._stops:
            return text
        pending = self._held + text
        found = [at for stop in self._stops if (at := pending.find(stop)) >= 0]
        if found:
            self.stopped = True
            self._held = ""
            return pending[: min(found)]
        keep = max(_overlap(pending, stop) for stop in self._stops)
        self._held = pending[len(pending) - keep :]
        return pending[: len(pending) - keep]

    def flush(self) -> str:
        """What was held back and can't become a stop string any more, because nothing follows."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning of `stop`, the whole of `stop` excluded."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
