"""The gateway as a process: how it starts, and that nothing it was asked ends in silence when it stops."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from estiba_gateway.config import GatewayConfig
from estiba_scheduler.store import LocalRedis, Store
from tests.builders import a_deployment
from tests.waiting import until

from .scripted_engine import ScriptedEngine, answer, stream_for_ever, when
from .waterfront import CHAT, DEADLINE_S, Waterfront, a_config, a_waterfront, asking


class GatewayProcess:
    def __init__(self, config: GatewayConfig) -> None:
        self.config = config
        file = config.state_dir / "gateway.json"
        file.write_text(config.model_dump_json())
        self._output = config.state_dir / "output.txt"
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "estiba_gateway", str(file)], stdout=output, stderr=subprocess.STDOUT
            )

    def url(self) -> str:
        until(self._port, DEADLINE_S, "the port file is there")
        return f"http://127.0.0.1:{self._port()}"

    def _port(self) -> str:
        assert self.process.poll() is None, self.story()
        return self.config.port_file.read_text().strip() if self.config.port_file.exists() else ""

    def story(self) -> str:
        return self._output.read_text()

    def exit_code(self) -> int:
        return self.process.wait(DEADLINE_S)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE_S)


@pytest.fixture
def processes() -> Any:
    started: list[GatewayProcess] = []
    yield started
    for process in started:
        process.end()


@pytest.fixture
async def held_and_running(directory: Path, redis: LocalRedis, engine: ScriptedEngine) -> AsyncIterator[Waterfront]:
    """A gateway with `a` ready and `b` absent."""
    async with a_waterfront(directory, redis, finish_s=0.5) as front:
        await front.deploys(a_deployment("a"), a_deployment("b"))
        await front.reports(engine.status())
        await front.state("a", "Ready")
        yield front


async def test_a_process_serves_and_ends_cleanly_on_sigterm(
    directory: Path, redis: LocalRedis, engine: ScriptedEngine, processes: list[GatewayProcess]
) -> None:
    store = Store(redis.url)
    await store.put_deployments([a_deployment("a"), a_deployment("b")])
    await store.put_instance(engine.status())
    processes.append(gateway := GatewayProcess(a_config(directory, redis.url)))
    async with httpx.AsyncClient(base_url=gateway.url(), timeout=DEADLINE_S, trust_env=False) as http:
        front = Waterfront(redis, store, None, http)  # type: ignore[arg-type]
        await front.state("a", "Ready")
        finish = asyncio.Event()
        engine.usual = when(finish, answer)
        running, held = front.asks("a"), front.asks("b")
        await front.flies(1)
        await front.holds(1, "default/b")
        gateway.process.send_signal(signal.SIGTERM)
        refused = await held
        finish.set()
        assert (await running).status_code == 200
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "gateway_stopping")
    assert int(refused.headers["retry-after"]) >= 1
    assert gateway.exit_code() == 0
    assert not gateway.config.port_file.exists()
    assert all(demand.queued == 0 for demand in (await store.demand()).values())
    await store.aclose()


def test_one_state_directory_has_one_gateway(
    directory: Path, redis: LocalRedis, processes: list[GatewayProcess]
) -> None:
    processes.append(first := GatewayProcess(a_config(directory, redis.url)))
    first.url()
    processes.append(second := GatewayProcess(a_config(directory, redis.url)))
    assert second.exit_code() == 3
    assert "another gateway runs on" in second.story()


def test_a_port_that_is_taken_is_said(directory: Path, redis: LocalRedis, processes: list[GatewayProcess]) -> None:
    """And the port file of a gateway that was killed there does not mislead."""
    processes.append(first := GatewayProcess(a_config(directory, redis.url)))
    port = int(first.url().rpartition(":")[2])
    config = a_config(directory / "two", redis.url, port=port)
    config.state_dir.mkdir()
    config.port_file.write_text("7\n")
    processes.append(second := GatewayProcess(config))
    assert second.exit_code() == 1
    assert f"127.0.0.1:{port} can't be listened on" in second.story()
    assert not config.port_file.exists()


async def test_a_stream_that_outlasts_the_end_gets_an_error_event(
    held_and_running: Waterfront, engine: ScriptedEngine
) -> None:
    engine.usual = stream_for_ever
    async with held_and_running.http.stream("POST", CHAT, json=asking(stream=True)) as stream:
        lines = (line async for line in stream.aiter_lines() if line)
        await anext(lines)
        held_and_running.gateway.end()
        last = [line async for line in lines][-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "gateway_stopping"


async def test_a_running_request_that_outlasts_the_end_gets_an_error(
    held_and_running: Waterfront, engine: ScriptedEngine
) -> None:
    engine.usual = when(asyncio.Event(), answer)
    asked = held_and_running.asks()
    await held_and_running.flies(1)
    held_and_running.gateway.end()
    cut = await asked
    assert (cut.status_code, cut.json()["error"]["code"]) == (503, "gateway_stopping")


async def test_more_requests_than_allowed_at_once_are_refused(directory: Path, redis: LocalRedis) -> None:
    async with a_waterfront(directory, redis, max_requests=2) as front:
        held = [front.asks(), front.asks()]
        await front.holds(2)
        refused = await front.ask()
        for task in held:
            task.cancel()
        await front.holds(0)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "gateway_busy")
