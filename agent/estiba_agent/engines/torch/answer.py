"""One answer on its way from the engine's thread to the event loop; leaving it early cancels the request."""

from __future__ import annotations

import asyncio
import logging

from .engine_loop import EngineLoop
from .request import Event, Finished, GenerationRequest, Rejected, RejectionCode, TextDelta

log = logging.getLogger(__name__)

EVENT_DEADLINE_S = 900.0
"""Longer than a request may wait in the engine's queue: only a thread that hangs lets this pass."""


class Answer:
    """An iterator of events, the last being Finished or Rejected. Call `leave` in any case; it cancels what runs."""

    def __init__(self, engine: EngineLoop, request: GenerationRequest) -> None:
        """Send the request. Call from the event loop that will iterate."""
        self.request = request
        self._engine = engine
        # holds at most one event for each token of the answer
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._ended = False
        loop = asyncio.get_running_loop()

        def emit(event: Event) -> None:
            try:
                loop.call_soon_threadsafe(self._events.put_nowait, event)
            except RuntimeError:  # the loop is closed: the process is ending, and nobody waits any more
                log.debug("an event of %s came too late", request.id)

        engine.generate(request, emit)

    def __aiter__(self) -> Answer:
        return self

    async def __anext__(self) -> Event:
        if self._ended:
            raise StopAsyncIteration
        try:
            async with asyncio.timeout(EVENT_DEADLINE_S):
                event = await self._events.get()
        except TimeoutError:
            self.leave()
            event = Rejected(RejectionCode.INTERNAL, f"the engine said nothing for {EVENT_DEADLINE_S:.0f} s")
        self._ended = isinstance(event, Finished | Rejected)
        return event

    async def whole(self) -> tuple[str, Finished | Rejected]:
        """All the text, and how it ended."""
        text: list[str] = []
        async for event in self:
            if not isinstance(event, TextDelta):
                return "".join(text), event
            text.append(event.text)
        raise AssertionError("an answer ends with Finished or Rejected")

    def leave(self) -> None:
        """Nobody waits for the rest."""
        if not self._ended:
            self._engine.cancel(self.request.id)
