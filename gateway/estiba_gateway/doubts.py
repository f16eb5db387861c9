"""Routes that were tried in vain, and when to try them again.

A table lags behind: an engine that has just begun to drain, or was killed, is still in it as ready. Such a route gets
no requests until the agent sees something new about the instance (then it is another Route). In case that never happens
(the refusal was a moment's), one request probes it now and then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .route_table import Route

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 4.0


@dataclass(slots=True)
class _Doubt:
    until: float
    pause_s: float = FIRST_PAUSE_S
    probing: bool = False


class Doubts:
    """`now` is in seconds, of any one clock."""

    def __init__(self) -> None:
        self._of: dict[Route, _Doubt] = {}

    def may_take(self, route: Route, now: float) -> bool:
        """Whether one more request may be sent there."""
        doubt = self._of.get(route)
        return doubt is None or (not doubt.probing and now >= doubt.until)

    def in_doubt(self, route: Route) -> bool:
        return route in self._of

    def sent(self, route: Route) -> None:
        """A request goes there; where there is doubt, it is the one that probes."""
        if (doubt := self._of.get(route)) is not None:
            doubt.probing = True

    def refused(self, route: Route, now: float) -> None:
        doubt = self._of.get(route)
        if doubt is None:
            self._of[route] = _Doubt(until=now + FIRST_PAUSE_S)
        elif doubt.probing:  # others may come back from the same refusal: it counts once
            doubt.probing = False
            doubt.pause_s = min(LONGEST_PAUSE_S, 2 * doubt.pause_s)
            doubt.until = now + doubt.pause_s

    def answered(self, route: Route) -> None:
        self._of.pop(route, None)

    def given_up(self, route: Route) -> None:
        """The request ended without saying anything about the route."""
        if (doubt := self._of.get(route)) is not None:
            doubt.probing = False

    def keep_only(self, routes: Iterable[Route]) -> None:
        """Forget those that are in the table no more."""
        there = set(routes)
        self._of = {route: doubt for route, doubt in self._of.items() if route in there}
