"""Who gets a route, who waits, and that every place that was taken is given back, whatever the order of events."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estiba_gateway.refusal import Refusal
from estiba_gateway.route_table import RouteTable
from estiba_gateway.switchboard import Lease, Switchboard
from estiba_gateway.waiting_line import Ticket
from estiba_scheduler.domain import InstanceStatus
from tests.builders import a_deployment, an_instance

A = "default/a"
EVENTS = ("arrive", "ready", "gone", "leave", "finish", "refuse", "tick")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def a_ready(id: str = "a-1", **changes: Any) -> InstanceStatus:
    status = an_instance("a").status
    assert status is not None
    return status.model_copy(update={"id": id, "url": f"http://127.0.0.1/{id}", **changes})


def a_table(*statuses: InstanceStatus) -> RouteTable:
    return RouteTable.of([a_deployment("a")], statuses)


def a_board(clock: Clock | None = None, **changes: Any) -> Switchboard:
    limits: dict[str, Any] = {"hold_s": 60, "max_held": 100, "max_held_bytes": 10_000, "max_requests": 100}
    board = Switchboard(**{"clock": clock or Clock(), "on_hold": lambda _: None, **limits, **changes})
    board.see(a_table())
    return board


async def waits(board: Switchboard, ticket: Ticket | None = None) -> asyncio.Task[Lease]:
    """A request that stands in the line."""
    task = asyncio.create_task(board.lease(ticket or board.arrive(A, 10)))
    await all_have_run()
    return task


async def all_have_run() -> None:
    """Every task has gone as far as it gets."""
    for _ in range(6):
        await asyncio.sleep(0)


async def test_only_a_line_that_begins_wakes_the_control_loop() -> None:
    woken: list[str] = []
    board = a_board(on_hold=woken.append)
    first, second = await waits(board), await waits(board)
    board.see(a_table(a_ready()))
    await asyncio.gather(first, second)
    assert woken == [A]


async def test_a_client_that_goes_as_its_turn_comes_gives_its_place_to_the_next() -> None:
    board = a_board()
    going, next_one = await waits(board), await waits(board)
    board.see(a_table(a_ready()))
    going.cancel()  # the turn is there, the task has not seen it yet
    with pytest.raises(asyncio.CancelledError):
        await going
    with await next_one:
        assert board.in_flight(A) == 1
    assert board.in_flight(A) == 0


async def test_a_route_in_doubt_gets_one_request_of_the_line() -> None:
    clock = Clock()
    board = a_board(clock)
    board.see(a_table(a_ready()))
    with await board.lease(board.arrive(A, 10)) as lease:
        lease.refused()
    waiting = [await waits(board) for _ in range(3)]
    clock.now += 1
    board.release()
    await all_have_run()
    assert [task.done() for task in waiting] == [True, False, False]
    waiting[0].result().answered()
    await all_have_run()
    assert all(task.done() for task in waiting)


async def test_time_that_was_held_counts_over_every_hold() -> None:
    clock = Clock()
    board = a_board(clock, hold_s=60)
    ticket = board.arrive(A, 10)
    holding = await waits(board, ticket)
    clock.now += 50
    board.see(a_table(a_ready()))
    (await holding).__exit__()
    board.see(a_table())
    again = await waits(board, ticket)
    assert board.oldest_queued_at(A) == clock.now - 50
    again.cancel()
    ticket.held_s = 60.0
    refused = await waits(board, ticket)
    assert refused.done()
    with pytest.raises(Refusal, match="within 60"):
        await refused


async def test_who_is_handed_back_has_a_place_though_the_line_is_full() -> None:
    clock = Clock()
    board = a_board(clock, max_held=1)
    ticket = board.arrive(A, 10)
    holding = await waits(board, ticket)
    clock.now += 1
    board.see(a_table(a_ready()))
    lease = await holding
    board.see(a_table())
    newcomer = await waits(board)
    with lease:
        lease.refused()
    again = await waits(board, ticket)
    assert board.held(A) == 2
    for task in (newcomer, again):
        task.cancel()


async def test_a_closed_board_tells_everybody_to_try_again() -> None:
    board = a_board()
    waiting = await waits(board)
    board.close()
    for refused in (waiting, board.lease(board.arrive(A, 10))):
        with pytest.raises(Refusal, match="stopping") as refusal:
            await refused
        assert refusal.value.headers() == {"retry-after": "2"}


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(["arrive", "ready", "gone", "leave", "finish", "refuse", "tick"]), max_size=40),
    st.randoms(),
)
def test_whatever_happens_places_are_given_back_and_order_is_kept(events: list[str], random: Any) -> None:
    asyncio.run(_play(events, random))


async def _play(events: list[str], random: Any) -> None:
    clock = Clock()
    board = a_board(clock)
    tickets: dict[asyncio.Task[Lease], Ticket] = {}
    released: list[int] = []
    leases: list[Lease] = []
    generation = 0

    async def settle() -> None:
        await all_have_run()
        for task in [t for t in tickets if t.done()]:
            ticket = tickets.pop(task)
            if not task.cancelled() and task.exception() is None:
                released.append(ticket.number)
                leases.append(task.result())

    for event in events:
        if event == "arrive":
            ticket = board.arrive(A, 10)
            tickets[asyncio.create_task(board.lease(ticket))] = ticket
        elif event == "ready":
            generation += 1
            board.see(a_table(a_ready("a-1", settled_generation=generation), a_ready("a-2")))
        elif event == "gone":
            board.see(a_table())
        elif event == "leave" and tickets:
            random.choice(list(tickets)).cancel()
        elif event in ("finish", "refuse") and leases:
            with leases.pop(random.randrange(len(leases))) as lease:
                if event == "refuse":
                    lease.refused()
                else:
                    lease.answered()
        elif event == "tick":
            clock.now += 1
            board.release()
        await settle()
        assert board.in_flight(A) == len(leases)
        assert board.held(A) == len(tickets)
        assert board.held_bytes == 10 * len(tickets)
    assert released == sorted(released)
    for task in tickets:
        task.cancel()
    await asyncio.gather(*tickets, return_exceptions=True)
    for lease in leases:
        lease.__exit__()
    assert (board.in_flight(A), board.held(A), board.held_bytes) == (0, 0, 0)
