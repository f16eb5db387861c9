"""Sequences in one batch: each as if it were alone, and as the model's authors wrote it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from estiba_agent.devices import DeviceAccount
from estiba_agent.engines.torch.kv import KvCacheFull
from estiba_agent.models import resolve

from .conftest import Load
from .machine import GPT_NEOX, LLAMA, PROMPT, QWEN3, greedy

ALL = pytest.mark.parametrize("uri", [LLAMA, QWEN3, GPT_NEOX])
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def reference(folder: Path, tokens: list[int]) -> torch.Tensor:
    """Logits of every position, as transformers computes them with its own attention."""
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    with torch.inference_mode():
        logits: torch.Tensor = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    return logits


@ALL
def test_prefill_and_decode_agree_with_transformers(uri: str, load: Load, cache: Path) -> None:
    runtime = load(uri)
    logits = greedy(runtime, 8)
    tokens = PROMPT + [int(row.argmax()) for row in logits[:-1]]
    torch.testing.assert_close(logits, reference(resolve(uri, cache).path, tokens)[len(PROMPT) - 1 :], **CLOSE)


@ALL
def test_a_prompt_in_pieces_is_the_prompt_in_one(uri: str, load: Load) -> None:
    runtime = load(uri)
    whole = greedy(runtime, 1)[0]
    sequence = runtime.new_sequence(64)
    for at in range(0, len(PROMPT), 5):
        row = runtime.step([(sequence, PROMPT[at : at + 5])])[0]
    torch.testing.assert_close(row, whole, **CLOSE)


@ALL
def test_sequences_in_one_step_dont_see_each_other(uri: str, load: Load) -> None:
    runtime = load(uri)
    prompts = [PROMPT, list(b"zzz"), list(b"Once upon a time, there was"), [7]]
    alone = [greedy(runtime, 3, prompt) for prompt in prompts]
    sequences = [runtime.new_sequence(64) for _ in prompts]
    feeds = prompts
    for step in range(3):
        rows = runtime.step(list(zip(sequences, feeds, strict=True)))
        for row, expected in zip(rows, alone, strict=True):
            torch.testing.assert_close(row, expected[step], **CLOSE)
        feeds = [[int(expected[step].argmax())] for expected in alone]


def test_one_prefills_while_others_decode(load: Load) -> None:
    runtime = load(LLAMA)
    expected_new, expected_old = greedy(runtime, 1, list(b"hello"))[0], greedy(runtime, 2)[1]
    old, new = runtime.new_sequence(64), runtime.new_sequence(64)
    token = int(runtime.step([(old, PROMPT)])[0].argmax())
    rows = runtime.step([(old, [token]), (new, list(b"hello"))])
    torch.testing.assert_close(rows[0], expected_old, **CLOSE)
    torch.testing.assert_close(rows[1], expected_new, **CLOSE)


def test_a_sliding_window_is_kept(load: Load, cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "windowed"
    shutil.copytree(resolve(QWEN3, cache).path, folder)
    config = json.loads((folder / "config.json").read_text())
    kinds = ["sliding_attention" if i % 2 else "full_attention" for i in range(config["num_hidden_layers"])]
    config |= {"use_sliding_window": True, "sliding_window": 8, "layer_types": kinds}
    (folder / "config.json").write_text(json.dumps(config))
    runtime = load(f"file://{folder}")
    sequence = runtime.new_sequence(64)
    rows = [runtime.step([(sequence, PROMPT[:12])])[0], runtime.step([(sequence, PROMPT[12:20])])[0]]
    rows += [runtime.step([(sequence, [token])])[0] for token in PROMPT[20:]]
    expected = reference(folder, PROMPT)
    torch.testing.assert_close(torch.stack(rows), expected[[11, 19, *range(20, len(PROMPT))]], **CLOSE)
    assert not torch.allclose(expected[-1], reference(resolve(QWEN3, cache).path, PROMPT)[-1], **CLOSE)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_width_weights_are_served(dtype: str, load: Load) -> None:
    runtime = load(LLAMA, dtype=dtype)
    logits = greedy(runtime, 3)
    assert logits.isfinite().all()
    runtime.set_resident_bytes(0)
    assert torch.equal(greedy(runtime, 3), logits)


def test_kv_bytes_per_token_are_what_a_sequence_takes(load: Load, account: DeviceAccount) -> None:
    runtime = load(LLAMA)
    before = account.held
    sequence = runtime.new_sequence(17)
    assert account.held - before == 17 * runtime.footprint.kv_bytes_per_token == runtime.kv_used_bytes
    runtime.free(sequence)
    runtime.free(sequence)
    assert account.held == before
    assert runtime.kv_used_bytes == 0


def test_a_full_cache_says_how_full(load: Load) -> None:
    runtime = load(LLAMA)
    per_token = runtime.footprint.kv_bytes_per_token
    runtime.set_kv_bytes(20 * per_token)
    first = runtime.new_sequence(15)
    with pytest.raises(KvCacheFull, match=rf"6 tokens need .*\({20 * per_token} bytes\) are in use"):
        runtime.new_sequence(6)
    runtime.new_sequence(5)
    with pytest.raises(KvCacheFull, match="let them finish first"):
        runtime.set_kv_bytes(19 * per_token)
    runtime.free(first)
    runtime.set_kv_bytes(19 * per_token)


def test_a_device_without_room_is_a_full_cache(load: Load, account: DeviceAccount) -> None:
    runtime = load(LLAMA)
    held = account.held
    account.set_budget(held + 5 * runtime.footprint.kv_bytes_per_token)
    with pytest.raises(KvCacheFull, match="not onto the device"):
        runtime.new_sequence(6)
    assert account.held == held


def test_a_step_that_makes_no_sense_is_refused(load: Load) -> None:
    runtime = load(LLAMA)
    sequence, freed = runtime.new_sequence(4), runtime.new_sequence(4)
    runtime.free(freed)
    for items, says in [
        ([], "at least one sequence"),
        ([(sequence, [])], "at least one token"),
        ([(sequence, [1]), (sequence, [2])], "once only"),
        ([(freed, [1])], "was freed"),
        ([(sequence, [1, 2, 3, 4, 5])], "has 0 of 4 tokens and can't take 5 more"),
    ]:
        with pytest.raises(ValueError, match=says):
            runtime.step(items)
    with pytest.raises(ValueError, match="at least one token"):
        runtime.new_sequence(0)


def test_a_random_model_never_trips_over_its_own_tokens(load: Load) -> None:
    runtime = load(LLAMA)
    sequence = runtime.new_sequence(256)
    for token in range(0, runtime.config.vocab_size, 2):
        row = runtime.step([(sequence, [token])])[0]
        assert isinstance(runtime.tokenizer.decode([token]), str)
    assert row.isfinite().all()
