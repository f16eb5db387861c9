"""Which request goes where, and which wait: the routes, the lines before them, and what is in flight on each.

Everything happens on one event loop, so nothing here needs a lock. New tables come in by `see`, requests by `arrive`
and `lease`; a line that begins is told to `on_hold`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count

from estiba_scheduler.domain import Deployment
from estiba_scheduler.quantities import format_bytes, format_seconds

from .doubts import Doubts
from .refusal import Code, Refusal
from .retry_after import retry_after_s
from .route_table import AmbiguousModel, MetState, NoSuchModel, Route, RouteTable
from .waiting_line import Ticket, WaitingLine

STARTING_RETRY_S = 1.0
BUSY_RETRY_S = 2.0
STOPPING_RETRY_S = 2.0
HOLD_WEIGHT = 0.2
"""Of one hold in the mean of those that ended well."""


class Lease:
    """The right to send one request over a route. A context manager: leaving it gives the place back.

    Within it, `answered` or `refused` says what came of it; neither: nothing is known about the route.
    """

    def __init__(self, board: Switchboard, route: Route, deployment: str) -> None:
        self.route = route
        self._board = board
        self._deployment = deployment
        self._open = True

    def answered(self) -> None:
        self._board.answered(self.route)

    def refused(self) -> None:
        self._board.refused(self.route)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        if self._open:
            self._open = False
            self._board.give_back(self.route, self._deployment)


class Switchboard:
    def __init__(
        self,
        *,
        hold_s: float,
        max_held: int,
        max_held_bytes: int,
        max_requests: int,
        clock: Callable[[], float],
        on_hold: Callable[[str], None],
    ) -> None:
        self.table: RouteTable | None = None
        self._hold_s = hold_s
        self._max_held = max_held
        self._max_held_bytes = max_held_bytes
        self._max_requests = max_requests
        self._clock = clock
        self._on_hold = on_hold
        self._numbers = count(1)
        self._doubts = Doubts()
        self._lines: dict[str, WaitingLine] = {}
        self._held_bytes = 0
        self._open = 0
        self._in_flight: Counter[str] = Counter()  # by instance
        self._in_flight_of: Counter[str] = Counter()  # by deployment
        self._hold_mean_s: dict[str, float] = {}
        self._closed = False

    # -- what others read -------------------------------------------------------------------------------------------

    def held(self, deployment: str) -> int:
        return len(self._lines.get(deployment, ()))

    @property
    def held_bytes(self) -> int:
        """Bodies of all held requests together."""
        return self._held_bytes

    def oldest_queued_at(self, deployment: str) -> float | None:
        line = self._lines.get(deployment)
        return line.oldest_queued_at if line else None

    def in_flight(self, deployment: str) -> int:
        return self._in_flight_of[deployment]

    def retry_after_s(self, deployment: str) -> float:
        statuses = self.table.statuses_of(deployment) if self.table else ()
        return retry_after_s(statuses, self._hold_mean_s.get(deployment), self._clock())

    # -- what changes -----------------------------------------------------------------------------------------------

    def see(self, table: RouteTable) -> None:
        """Requests whose model is no more, or can't be served, end at once; others go where there is a route now."""
        self.table = table
        self._doubts.keep_only(route for routes in table.routes.values() for route in routes)
        for id in [id for id in self._hold_mean_s if id not in table.deployments]:
            del self._hold_mean_s[id]
        for id, line in tuple(self._lines.items()):
            for ticket in line:
                refusal = self._hopeless(id)  # one each: a raised exception remembers where it went
                if refusal is not None:
                    self._dismiss(ticket, refusal)
        self.release()

    def release(self) -> None:
        """Send off who can go, in order. To be called when routes or the time have changed."""
        for id, line in tuple(self._lines.items()):
            while (ticket := line.first) is not None and (route := self._route(id)) is not None:
                self._leave(ticket)
                if ticket.turn is not None and not ticket.turn.done():
                    ticket.turn.set_result(self._lease(route, id))

    def close(self) -> None:
        """The gateway stops: whoever waits, or comes, is told to try again."""
        self._closed = True
        for line in tuple(self._lines.values()):
            for ticket in line:
                self._dismiss(ticket, _stopping())

    # -- a request --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """One of the places for open requests. Raises Refusal when all are taken, or the gateway stops."""
        if self._closed:
            raise _stopping()
        if self._open >= self._max_requests:
            raise Refusal(
                503,
                Code.GATEWAY_BUSY,
                f"{self._open} requests are open, as many as this gateway takes",
                retry_after_s=BUSY_RETRY_S,
            )
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1

    def find(self, name: str) -> Deployment:
        """Raises Refusal for a model that is not there, or not known to be there yet."""
        if self.table is None:
            raise self.starting()
        try:
            return self.table.find(name)
        except NoSuchModel as error:
            raise Refusal(404, Code.MODEL_NOT_FOUND, str(error), param="model") from None
        except AmbiguousModel as error:
            raise Refusal(404, Code.MODEL_AMBIGUOUS, str(error), param="model") from None

    def starting(self) -> Refusal:
        message = "the gateway has not read yet which models there are (is Redis up?)"
        return Refusal(503, Code.GATEWAY_STARTING, message, retry_after_s=STARTING_RETRY_S)

    def arrive(self, deployment: str, body_bytes: int) -> Ticket:
        state = self.table.state_of(deployment) if self.table else MetState.ABSENT
        return Ticket(next(self._numbers), deployment, self._clock(), state, body_bytes)

    async def lease(self, ticket: Ticket) -> Lease:
        """A place on a route, at once or after being held. May be asked again with the same ticket.

        Raises Refusal: the line is full, the time to be held is over, or the model can't be served.
        """
        if self._closed:
            raise _stopping()
        refusal = self._hopeless(ticket.deployment)
        if refusal is not None:
            raise refusal
        if not self.held(ticket.deployment):
            route = self._route(ticket.deployment)
            if route is not None:
                return self._lease(route, ticket.deployment)
        return await self._hold(ticket)

    async def _hold(self, ticket: Ticket) -> Lease:
        left_s = self._hold_s - ticket.held_s
        if left_s <= 0:
            raise self._held_too_long(ticket)
        if ticket.held_s == 0:  # whoever is handed back was admitted before
            self._check_room(ticket)
        began = self._clock()
        ticket.queued_since = began - ticket.held_s
        turn: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        ticket.turn = turn
        line = self._lines.setdefault(ticket.deployment, WaitingLine())
        line.join(ticket)
        self._held_bytes += ticket.body_bytes
        self.release()  # after a hand-back another route may be open
        if len(line) == 1:
            self._on_hold(ticket.deployment)
        try:
            await asyncio.wait([turn], timeout=left_s)
            if not turn.done():
                raise self._held_too_long(ticket)
            lease = turn.result()
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                with turn.result():  # the turn came as the client went
                    pass
                self.release()
            raise
        finally:
            ticket.held_s += self._clock() - began
            self._leave(ticket)
            turn.cancel()
        self._learn(ticket)
        return lease

    # -- what became of a lease -------------------------------------------------------------------------------------

    def answered(self, route: Route) -> None:
        if self._doubts.in_doubt(route):
            self._doubts.answered(route)
            self.release()

    def refused(self, route: Route) -> None:
        self._doubts.refused(route, self._clock())

    def give_back(self, route: Route, deployment: str) -> None:
        self._doubts.given_up(route)
        for counter, key in ((self._in_flight, route.instance), (self._in_flight_of, deployment)):
            counter[key] -= 1
            if counter[key] <= 0:
                del counter[key]

    # -- inner ------------------------------------------------------------------------------------------------------

    def _route(self, deployment: str) -> Route | None:
        """The open route with the fewest requests in flight."""
        now = self._clock()
        routes = self.table.routes_of(deployment) if self.table else ()
        open_ones = [route for route in routes if self._doubts.may_take(route, now)]
        return min(open_ones, key=lambda r: (self._in_flight[r.instance], r.instance), default=None)

    def _lease(self, route: Route, deployment: str) -> Lease:
        self._doubts.sent(route)
        self._in_flight[route.instance] += 1
        self._in_flight_of[deployment] += 1
        return Lease(self, route, deployment)

    def _leave(self, ticket: Ticket) -> None:
        line = self._lines.get(ticket.deployment)
        if line is not None and line.leave(ticket):
            self._held_bytes -= ticket.body_bytes
            if not line:
                del self._lines[ticket.deployment]

    def _dismiss(self, ticket: Ticket, refusal: Refusal) -> None:
        self._leave(ticket)
        if ticket.turn is not None and not ticket.turn.done():
            ticket.turn.set_exception(refusal)

    def _hopeless(self, id: str) -> Refusal | None:
        """Why no request of this model need wait; None when it may."""
        if self.table is None:
            return None
        deployment = self.table.deployments.get(id)
        if deployment is None:
            return Refusal(404, Code.MODEL_NOT_FOUND, f"the model {id} has been deleted", param="model")
        if self.table.routes_of(id):
            return None
        if deployment.problem:
            message = f"the model {id} can't be served: {deployment.problem}"
            return Refusal(503, Code.MODEL_UNAVAILABLE, message, param="model")
        if deployment.max_replicas == 0:
            message = f"the model {id} is switched off (it may have 0 replicas)"
            return Refusal(503, Code.MODEL_UNAVAILABLE, message, param="model")
        return None

    def _check_room(self, ticket: Ticket) -> None:
        state = self.table.state_of(ticket.deployment) if self.table else MetState.ABSENT
        message = ""
        if self.held(ticket.deployment) >= self._max_held:
            message = f"{self.held(ticket.deployment)} requests for {ticket.deployment} are held already"
        elif self._held_bytes + ticket.body_bytes > self._max_held_bytes:
            message = f"requests of {format_bytes(self._held_bytes)} are held already"
        if message:
            raise Refusal(
                503,
                Code.TOO_MANY_HELD,
                f"{message}, and {ticket.deployment} is not ready (it is {state})",
                retry_after_s=self.retry_after_s(ticket.deployment),
            )

    def _held_too_long(self, ticket: Ticket) -> Refusal:
        state = self.table.state_of(ticket.deployment) if self.table else MetState.ABSENT
        waited = format_seconds(self._hold_s)
        return Refusal(
            503,
            Code.MODEL_NOT_READY,
            f"no instance of {ticket.deployment} took the request within {waited} (it is {state})",
            retry_after_s=self.retry_after_s(ticket.deployment),
        )

    def _learn(self, ticket: Ticket) -> None:
        mean = self._hold_mean_s.get(ticket.deployment, ticket.held_s)
        self._hold_mean_s[ticket.deployment] = mean + HOLD_WEIGHT * (ticket.held_s - mean)


def _stopping() -> Refusal:
    return Refusal(503, Code.GATEWAY_STOPPING, "the gateway is stopping", retry_after_s=STOPPING_RETRY_S)
