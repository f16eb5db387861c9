"""Server-sent events as they pass by: cut at the ends of events, and read for what the gateway must know."""

from __future__ import annotations

import json
import re
from typing import Any

from .demand_meter import Usage

LONGEST_EVENT_BYTES = 1024 * 1024
END_OF_EVENT = re.compile(rb"\r\n\r\n|\n\n|\r\r")


class EventTooLong(Exception):
    """An engine sent an event of more than a megabyte."""


class PassingEvents:
    """Feed it bytes as they come; it gives back whole events only, so that one that breaks off is never sent."""

    def __init__(self) -> None:
        self._rest = b""
        self.usage: Usage | None = None
        self.complete = False  # [DONE] has passed
        self.told_error = False  # the engine itself said what went wrong

    def feed(self, data: bytes) -> bytes:
        """The bytes of all events that are whole now. Raises EventTooLong."""
        self._rest += data
        end = 0
        for match in END_OF_EVENT.finditer(self._rest):
            self._read(self._rest[end : match.start()])
            end = match.end()
        whole, self._rest = self._rest[:end], self._rest[end:]
        if len(self._rest) > LONGEST_EVENT_BYTES:
            raise EventTooLong
        return whole

    def _read(self, event: bytes) -> None:
        data = b"\n".join(line[5:].strip() for line in event.splitlines() if line.startswith(b"data:"))
        if data == b"[DONE]":
            self.complete = True
        elif b'"usage"' in data or b'"error"' in data:
            document = _object(data)
            self.usage = usage_in(document) or self.usage
            self.told_error = self.told_error or bool(document.get("error"))


def usage_in(document: dict[str, Any]) -> Usage | None:
    """The tokens that an answer says it took; None where it doesn't say."""
    usage = document.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt, output = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not isinstance(prompt, int) or not isinstance(output, int):
        return None
    return Usage(prompt, output)


def error_event(document: dict[str, Any]) -> bytes:
    """What ends a stream that can't go on. No [DONE] follows: a reader must not take it for a whole answer."""
    return b"data: " + json.dumps(document, ensure_ascii=False).encode() + b"\n\n"


def _object(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
