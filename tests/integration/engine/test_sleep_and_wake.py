"""A real engine drains, sleeps, wakes and resizes on a device that others use as well."""

from __future__ import annotations

import asyncio

import pytest

from estiba_agent.engines.control_client import EngineRefused
from estiba_agent.engines.wire import (
    DrainRequest,
    EnginePhase,
    MeasureRequest,
    ResidencyRequest,
    SleepRequest,
)

from .running_engine import BUDGET_BYTES, DEADLINE_S, DEVICE_BYTES, KV_BYTES, RunningEngine
from .test_serving import asking, busy, idle, text_of


async def test_s2_sleep_while_a_request_runs_is_refused_and_after_a_drain_it_sleeps(engine: RunningEngine) -> None:
    """S2."""
    async with await engine.http() as http, engine.control() as control:
        running = asyncio.create_task(text_of(http, asking(400)))
        await busy(engine)
        with pytest.raises(EngineRefused) as refused:
            await control.sleep(SleepRequest(level=1))
        assert (refused.value.status, refused.value.reason) == (409, "RequestsRunning")
        draining = asyncio.create_task(control.drain(DrainRequest(deadline_s=600), timeout_s=DEADLINE_S))
        await engine.until_phase(EnginePhase.DRAINING, EnginePhase.DRAINED)
        meanwhile = await http.post("/v1/chat/completions", json=asking(5))
        assert (meanwhile.status_code, meanwhile.headers["x-estiba-handed-back"]) == (503, "1")
        assert (await draining).phase is EnginePhase.DRAINED
        assert len(await running) > 0
        assert (await control.sleep(SleepRequest(level=1))).phase is EnginePhase.ASLEEP1


async def test_at_its_deadline_a_drain_ends_what_runs_and_hands_back_what_nobody_has_seen(
    engine: RunningEngine,
) -> None:
    async with await engine.http() as http, engine.control() as control:
        running = asyncio.create_task(http.post("/v1/chat/completions", json=asking(1900)))
        await busy(engine)
        assert (await control.drain(DrainRequest(deadline_s=0.05))).phase is EnginePhase.DRAINED
        answer = await running
    assert (answer.status_code, answer.headers["x-estiba-handed-back"]) == (503, "1")


async def test_a_stream_cut_by_a_drain_ends_with_an_error_and_no_done(engine: RunningEngine) -> None:
    async with await engine.http() as http, engine.control() as control:
        async with http.stream("POST", "/v1/chat/completions", json=asking(1900, stream=True)) as stream:
            lines = stream.aiter_lines()
            await anext(lines)
            await control.drain(DrainRequest(deadline_s=0.05))
            rest = [line async for line in lines if line]
    assert '"error"' in rest[-1]
    assert "data: [DONE]" not in rest


@pytest.mark.parametrize("level", [1, 2])
async def test_after_a_wake_the_answers_are_the_same(engine: RunningEngine, level: int) -> None:
    async with await engine.http() as http, engine.control() as control:
        before, held = await text_of(http, asking(30)), engine.ledger.used_bytes()
        asleep = await control.sleep(SleepRequest(level=level))
        assert asleep.resident_bytes == 0
        assert engine.ledger.used_bytes() < held // 2
        awake = await control.wake(engine.full_wake(verify=True))
        assert awake.phase is EnginePhase.READY
        assert awake.resident_fraction == 1.0
        assert await text_of(http, asking(30)) == before


async def test_a_wake_without_memory_is_refused_with_numbers_and_works_once_there_is_room(
    engine: RunningEngine,
) -> None:
    """S1."""
    async with await engine.http() as http, engine.control() as control:
        await control.sleep(SleepRequest(level=1))
        other = engine.ledger.account("another-0001", DEVICE_BYTES)
        try:
            other.grow(engine.ledger.free_bytes() - 4096)
            with pytest.raises(EngineRefused) as refused:
                await control.wake(engine.full_wake())
            assert (refused.value.status, refused.value.reason) == (409, "InsufficientDeviceMemory")
            assert "(4096 bytes) are free" in refused.value.message
            assert "another-0001" in refused.value.message
            assert (await control.state()).phase is EnginePhase.ASLEEP1
        finally:
            other.close()
        assert (await control.wake(engine.full_wake())).phase is EnginePhase.READY
        assert await text_of(http, asking(5))


async def test_answers_don_t_change_with_the_residency_even_while_they_are_made(engine: RunningEngine) -> None:
    async with await engine.http() as http, engine.control() as control:
        full = await text_of(http, asking(300))
        running = asyncio.create_task(text_of(http, asking(300)))
        await busy(engine)
        state = await control.state()
        assert state.footprint is not None
        least = ResidencyRequest(
            resident_bytes=state.footprint.fixed_bytes,
            kv_bytes=KV_BYTES,
            budget_bytes=BUDGET_BYTES,
            generation=state.generation,
        )
        offloaded = await control.residency(least)
        assert offloaded.resident_bytes < state.resident_bytes
        assert offloaded.host_bytes > 0
        assert await running == full
        back = await control.residency(least.model_copy(update={"resident_bytes": state.footprint.weight_bytes}))
        assert back.resident_fraction == 1.0


async def test_a_measurement_times_the_steps_asked_for(engine: RunningEngine) -> None:
    async with engine.control() as control:
        measured = await control.measure(MeasureRequest(batch=2, context_tokens=16, steps=4, warmup=1))
    assert len(measured.step_s) == 4
    assert measured.batch == 2
    assert measured.prefill_s > 0
    await idle(engine)


async def test_a_command_of_an_older_generation_is_refused(engine: RunningEngine) -> None:
    async with engine.control() as control:
        state = await control.state()
        newest = ResidencyRequest(
            resident_bytes=BUDGET_BYTES, kv_bytes=KV_BYTES, budget_bytes=BUDGET_BYTES, generation=state.generation + 5
        )
        await control.residency(newest)
        with pytest.raises(EngineRefused) as refused:
            await control.sleep(SleepRequest(level=1, generation=state.generation + 4))
        assert refused.value.reason == "StaleGeneration"
        assert (await control.state()).phase is EnginePhase.READY
