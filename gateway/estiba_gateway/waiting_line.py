"""Requests of one model that wait for an instance: first come, first served, also for those handed back."""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .route_table import MetState
    from .switchboard import Lease


@dataclass(slots=True, eq=False)
class Ticket:
    """One request from its arrival to its end. Times are seconds since the epoch."""

    number: int  # in order of arrival
    deployment: str
    arrived_at: float
    met_state: MetState
    body_bytes: int
    held_s: float = 0.0  # all in all, over every time it was held
    queued_since: float = 0.0  # what was held before is counted in
    turn: asyncio.Future[Lease] | None = field(default=None, repr=False)


class WaitingLine:
    """Tickets in order of arrival."""

    def __init__(self) -> None:
        self._tickets: list[Ticket] = []

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        return iter(tuple(self._tickets))

    @property
    def first(self) -> Ticket | None:
        return self._tickets[0] if self._tickets else None

    @property
    def oldest_queued_at(self) -> float | None:
        return min((ticket.queued_since for ticket in self._tickets), default=None)

    def join(self, ticket: Ticket) -> None:
        """At its place by arrival: who was handed back stands before those who came later."""
        insort(self._tickets, ticket, key=lambda t: t.number)

    def leave(self, ticket: Ticket) -> bool:
        """Whether it stood there."""
        if ticket not in self._tickets:
            return False
        self._tickets.remove(ticket)
        return True
