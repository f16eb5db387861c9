"""S4: a command reaches the engine it is meant for, or nobody."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import httpx
import pytest

from estiba_agent.engines.control_client import EngineControl, EngineRefused, EngineUnreachable, WrongEngine
from estiba_agent.engines.wire import EnginePhase, SleepRequest

from .running_engine import RunningEngine


async def test_an_engine_tells_who_it_is(engine: RunningEngine) -> None:
    async with engine.control() as control:
        identity = await control.identity()
    assert (identity.pid, identity.instance, identity.engine) == (engine.process.pid, "tiny-0001", "torch")
    assert identity.model_digest
    assert identity.boot_id
    known = engine.identity(boot_id=identity.boot_id, model_digest=identity.model_digest)
    async with engine.control(known) as control:
        assert await control.identity() == identity
        assert (await control.state()).phase is EnginePhase.READY


async def test_a_command_for_another_boot_of_the_engine_is_not_carried_out(engine: RunningEngine) -> None:
    async with engine.control(engine.identity(boot_id="an-earlier-one")) as control:
        with pytest.raises(WrongEngine, match="an-earlier-one"):
            await control.sleep(SleepRequest(level=1))
    assert await engine.phase() is EnginePhase.READY


@pytest.mark.parametrize("wrong", [{"pid": 1}, {"started_at": 1.0}, {"model_digest": "another"}])
async def test_s4_an_answer_from_another_process_is_not_trusted(
    engine: RunningEngine, wrong: dict[str, object]
) -> None:
    async with engine.control(engine.identity(**wrong)) as control:
        with pytest.raises(WrongEngine):
            await control.identity()


async def test_only_its_user_may_speak_to_an_engine(engine: RunningEngine) -> None:
    mode = engine.launch.control_socket.stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600
    assert engine.launch.control_socket.stat().st_uid == os.getuid()


async def test_a_socket_with_nobody_behind_it_is_told_as_unreachable(tmp_path: Path) -> None:
    async with EngineControl(tmp_path / "nobody.sock") as control:
        with pytest.raises(EngineUnreachable, match=r"nobody\.sock"):
            await control.state()


async def test_an_engine_that_is_too_slow_is_told_as_unreachable_within_the_deadline(engine: RunningEngine) -> None:
    async with EngineControl(engine.launch.control_socket, timeout_s=0.0) as control:
        with pytest.raises(EngineUnreachable, match="did not answer within"):
            await control.state()


async def test_bad_commands_are_refused_with_what_is_wrong(engine: RunningEngine) -> None:
    transport = httpx.AsyncHTTPTransport(uds=str(engine.launch.control_socket))
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as http:
        unknown_level = await http.post("/v1/sleep", json={"level": 3})
        assert unknown_level.status_code == 422
        assert "level" in unknown_level.json()["error"]["message"]
        assert (await http.post("/v1/sleep", content=b"x" * 100_000)).status_code == 413
        assert (await http.get("/v1/nothing")).json()["error"]["reason"] == "Invalid"
        assert unknown_level.headers["x-estiba-pid"] == str(engine.process.pid)


async def test_refusals_carry_status_reason_and_message(engine: RunningEngine) -> None:
    async with engine.control() as control:
        await control.sleep(SleepRequest(level=2))
        with pytest.raises(EngineRefused) as refused:
            await control.resume()
    assert (refused.value.status, refused.value.reason) == (409, "WrongPhase")
    assert "wake it" in refused.value.message
