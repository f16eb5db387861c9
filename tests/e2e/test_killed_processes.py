"""`kill -9` of each process while requests run: nobody is left without an answer, and state comes back."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import psutil
import pytest

from estiba.chat_probe import Answer, chat
from estiba_agent.devices import DeviceLedger
from tests.waiting import until_async

from .running_up import DEADLINE_S, RunningUp, a_document, write

pytestmark = pytest.mark.slow

LONG = {"max_tokens": 1500, "ignore_eos": True}


def long_chats(up: RunningUp, model: str = "a", count: int = 2) -> list[asyncio.Task[Answer]]:
    return [
        asyncio.create_task(chat(up.gateway, model, f"story {n}", timeout_s=DEADLINE_S, **LONG)) for n in range(count)
    ]


async def short_chat(up: RunningUp, model: str = "a") -> Answer:
    return await chat(up.gateway, model, "hello", 4, timeout_s=DEADLINE_S, ignore_eos=True)


async def test_an_engine(up: RunningUp) -> None:
    """Requests that had begun end in an error that says so; the next one is answered by a new engine."""
    (engine,) = up.engines()
    running = long_chats(up)
    await up.until_running("a", 2)
    engine.kill()
    answers = await asyncio.gather(*running)
    assert [bool(a.error) for a in answers] == [True, True], answers
    assert all("broke off before its answer was whole" in a.error for a in answers), answers
    again = await short_chat(up)
    assert again.ok, again.error
    (new,) = up.engines()
    assert new.pid != engine.pid
    view = await up.until(lambda v: v.models[0].state == "Ready", "a is ready")
    held = DeviceLedger(up.state_dir / "ledger" / "cpu-0", 1).holders()
    assert list(held) == [view.instances[0].spec.id], "what the killed engine held is free again"


async def test_the_agent(up: RunningUp) -> None:
    """Running requests don't notice; the next agent takes over the same engine."""
    (engine,) = up.engines()
    running = long_chats(up)
    await up.until_running("a", 2)
    agent = up.processes()["agent"]
    os.kill(agent, signal.SIGKILL)
    answers = await asyncio.gather(*running)
    assert [a.error for a in answers] == ["", ""]
    assert [a.tokens for a in answers] == [1500, 1500]
    await up.until(lambda v: up.processes()["agent"] != agent and not v.problems, "an agent is back", DEADLINE_S)
    await up.until_ready("a")
    assert [p.pid for p in up.engines()] == [engine.pid]
    assert await up.kinds("a") == ["Start"], "nothing is started twice"
    assert (await short_chat(up)).ok


async def test_redis(up: RunningUp) -> None:
    """Running requests and new ones are answered meanwhile; what Redis knew is told again."""
    running = long_chats(up)
    await up.until_running("a", 2)
    (redis,) = [p for p in up.left_over() if "redis-server" in " ".join(p.cmdline())]
    redis.kill()
    meanwhile = await short_chat(up)
    answers = await asyncio.gather(*running)
    assert [a.error for a in (*answers, meanwhile)] == ["", "", ""]
    view = await up.until(lambda v: not v.problems and v.models[0].state == "Ready", "all is well", DEADLINE_S)
    assert [m.name for m in view.models] == ["a"]
    assert await up.kinds("a") in ([], ["Start"]), "decisions of before may be lost; nothing is started twice"
    assert len(up.engines()) == 1
    # A deployment that is new after the loss reaches the gateway through the new Redis.
    document = write(up.state_dir.parent / "b.yaml", a_document("b", seed=1))
    assert (await up.command("apply", "-f", str(document))).returncode == 0
    answered = await short_chat(up, "b")
    assert answered.ok, answered.error


async def test_the_gateway(directory: Path) -> None:
    """Running requests end in a broken connection, not in silence; the next gateway has the same port."""
    file = write(directory / "a.yaml", a_document("a", replicas={"min": 1}))
    up = RunningUp(directory, file, "--port", str(a_free_port()))
    up.start()
    try:
        await up.answers()
        await up.until_ready("a")
        running = long_chats(up)
        await up.until_running("a", 2)
        gateway = up.processes()["gateway"]
        os.kill(gateway, signal.SIGKILL)
        answers = await asyncio.gather(*running)
        assert all(a.error for a in answers)
        await up.until(lambda v: up.processes()["gateway"] != gateway and not v.problems, "a gateway is back")

        async def answered() -> bool:
            return (await short_chat(up)).ok

        await until_async(answered, DEADLINE_S)
        await up.until(lambda v: all(m.in_flight == 0 for m in v.models), "whom nobody listens to is not served on")
    finally:
        up.kill_all()


async def test_up_itself(up: RunningUp, directory: Path) -> None:
    """Requests go on without it; the next `up` finds everything, and starts nothing anew."""
    (engine,) = up.engines()
    running = long_chats(up)
    await up.until_running("a", 2)
    up.kill()
    during = await short_chat(up)
    answers = await asyncio.gather(*running)
    assert [a.error for a in (*answers, during)] == ["", "", ""]
    again = RunningUp(directory)
    again.start()
    try:
        await again.answers()
        await again.until_ready("a")
        assert [p.pid for p in again.engines()] == [engine.pid]
        assert (await short_chat(again)).ok
        assert (await again.kinds("a")).count("Start") <= 1, "only the one of before"
        assert len([p for p in again.left_over() if "estiba_agent" in p.cmdline()]) == 1
        assert len([p for p in again.left_over() if "estiba_gateway" in p.cmdline()]) == 1
        assert await again.end() == 0
        assert again.left_over() == []
    finally:
        again.kill_all()


async def test_the_end_lets_running_requests_finish_and_leaves_nothing(up: RunningUp) -> None:
    (engine,) = up.engines()
    running = long_chats(up)
    await up.until_running("a", 2)
    os.kill(up.pid, signal.SIGTERM)
    answers = await asyncio.gather(*running)
    # The front door closes first; who is inside is served to the end.
    assert [a.error for a in answers] == ["", ""]
    assert await up.end() == 0
    assert up.left_over() == []
    assert not psutil.pid_exists(engine.pid)
    assert DeviceLedger(up.state_dir / "ledger" / "cpu-0", 1).used_bytes() == 0


def a_free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
