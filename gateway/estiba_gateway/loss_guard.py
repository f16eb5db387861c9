"""A store that has lost everything looks like one whose deployments were all deleted. Which of the two, time tells."""

from __future__ import annotations

from collections.abc import Sequence

from estiba_scheduler.domain import Deployment

BELIEVED_AFTER_S = 5.0
"""After a loss the deployments are told again well within this."""


class LossGuard:
    def __init__(self) -> None:
        self._known: Sequence[Deployment] = ()
        self._empty_since: float | None = None

    def believe(self, told: Sequence[Deployment], now: float) -> Sequence[Deployment]:
        """What the store told; those known before, while it tells of none and has done so for less than 5 s."""
        if told or not self._known:
            self._empty_since = None
            self._known = told
            return told
        if self._empty_since is None:
            self._empty_since = now
        if now - self._empty_since < BELIEVED_AFTER_S:
            return self._known
        self._known = ()
        return ()
