"""An engine process answers from its first moment, and its end says why."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from estiba_agent.engines.control_client import EngineRefused
from estiba_agent.engines.wire import EnginePhase, SleepRequest
from tests.waiting import until_async

from .running_engine import MIB, START_S, RunningEngine, a_launch
from .test_serving import asking, busy


async def test_a_loading_engine_answers_and_a_terminated_one_finishes_what_runs(
    engine_directory: Path, tiny_model: str
) -> None:
    engine = RunningEngine(engine_directory, a_launch(engine_directory, tiny_model))
    try:
        await until_async(engine.phase, START_S, "somebody answers")
        assert await engine.phase() is EnginePhase.LOADING
        async with await engine.http() as http, engine.control() as control:
            early = await http.post("/v1/chat/completions", json=asking(5))
            assert (early.status_code, early.headers["x-estiba-handed-back"]) == (503, "1")
            assert early.headers["x-estiba-engine"] == "tiny-0001"
            assert (await control.identity()).pid == engine.process.pid
            with pytest.raises(EngineRefused) as refused:
                await control.sleep(SleepRequest(level=1))
            assert refused.value.reason == "Loading"
            state = await engine.until_phase(EnginePhase.READY)
            assert state.load_s is not None
            assert state.load_s > 0
            assert state.footprint is not None
            running = asyncio.create_task(http.post("/v1/chat/completions", json=asking(100)))
            await busy(engine)
            engine.process.send_signal(signal.SIGTERM)
            answer = await running
        assert answer.status_code == 200
        assert answer.json()["usage"]["completion_tokens"] == 100
        assert engine.exit_code() == 0
        assert engine.last_line().endswith("stopped")
        assert engine.ledger.used_bytes() == 0
        assert not engine.launch.control_socket.exists()
    finally:
        engine.end()


async def test_an_engine_told_to_stop_while_it_loads_ends_at_once(engine_directory: Path, tiny_model: str) -> None:
    engine = RunningEngine(engine_directory, a_launch(engine_directory, tiny_model))
    try:
        await until_async(engine.phase, START_S, "somebody answers")
        async with engine.control() as control:
            await control.stop()
        assert engine.exit_code() == 0
    finally:
        engine.end()


async def test_an_engine_without_memory_for_its_weights_says_so_and_holds_nothing(
    engine_directory: Path, tiny_model: str
) -> None:
    launch = a_launch(engine_directory, tiny_model, device_memory_bytes=MIB // 8)
    await says(engine_directory, RunningEngine(engine_directory, launch), "OutOfMemory")


async def test_an_engine_whose_model_is_not_there_says_so(engine_directory: Path) -> None:
    launch = a_launch(engine_directory, "file:///nowhere/at/all")
    await says(engine_directory, RunningEngine(engine_directory, launch), "BadModel")


async def says(directory: Path, engine: RunningEngine, reason: str) -> None:
    """It can still be asked, and its last line says the same."""
    try:
        state = await engine.until_phase(EnginePhase.FAILED)
        assert state.error_reason == reason
        assert state.error
        assert engine.ledger.used_bytes() == 0
        async with engine.control() as control:
            await control.stop()
        assert engine.exit_code() == 1
        assert f"failed: {reason}: " in engine.last_line()
    finally:
        engine.end()


def test_a_launch_file_that_can_t_be_used_is_told_at_once(tmp_path: Path) -> None:
    launch = tmp_path / "launch.json"
    launch.write_text('{"instance": "x"}')
    ended = subprocess.run(
        [sys.executable, "-m", "estiba_agent.engines.torch", str(launch)], capture_output=True, timeout=START_S
    )
    assert ended.returncode == 2
    assert b"served_name" in ended.stderr


def test_a_socket_path_that_is_too_long_is_told_at_once(engine_directory: Path, tiny_model: str) -> None:
    launch = a_launch(engine_directory, tiny_model, control_socket=engine_directory / ("x" * 120) / "c.sock")
    engine = RunningEngine(engine_directory, launch)
    try:
        assert engine.exit_code() == 2
        assert "the control socket path is longer than 103 bytes" in engine.last_line()
    finally:
        engine.end()
