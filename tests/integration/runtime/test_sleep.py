"""Asleep and back: what is given up, what is kept, and the same answers after."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch

from estiba_agent.devices import DeviceAccount, DeviceOutOfMemory
from estiba_agent.engines.torch.kv import KvCacheFull
from estiba_agent.engines.torch.runtime import RuntimeAsleep
from estiba_agent.models import BadModel, resolve

from .conftest import Load
from .machine import GPT_NEOX, LLAMA, PROMPT, BreakableLink, greedy

KV = 1024 * 1024


@pytest.mark.parametrize("uri", [LLAMA, GPT_NEOX])
@pytest.mark.parametrize("level", [1, 2])
def test_a_woken_model_answers_as_before(uri: str, level: int, load: Load) -> None:
    runtime = load(uri)
    weights = runtime.footprint.weight_bytes
    whole = greedy(runtime, 4)
    for before, after in ((1.0, 0.4), (0.4, 0.8), (0.8, 1.0)):
        runtime.set_resident_bytes(round(before * weights))
        runtime.sleep(level, False)
        runtime.wake(round(after * weights), KV)
        assert runtime.resident_bytes <= round(after * weights)
        assert torch.equal(greedy(runtime, 4), whole)


@pytest.mark.parametrize("level", [1, 2])
def test_a_sleeper_holds_nothing_but_its_constants(level: int, load: Load, account: DeviceAccount) -> None:
    runtime = load(LLAMA)
    runtime.new_sequence(10)
    runtime.sleep(level, False)
    assert account.held == runtime.footprint.overhead_bytes < 1024
    assert runtime.resident_bytes == 0
    assert runtime.kv_used_bytes == 0
    expected = runtime.footprint.weight_bytes if level == 1 else 0
    assert runtime.host_bytes == pytest.approx(expected, rel=0.05)
    footprint = runtime.footprint
    measured = (footprint.sleep1_host_bytes, footprint.sleep2_host_bytes)[level - 1]
    assert measured == runtime.host_bytes


@pytest.mark.parametrize("fraction", [1.0, 0.3])
def test_kept_sequences_go_on_where_they_were(fraction: float, load: Load, account: DeviceAccount) -> None:
    runtime = load(LLAMA)
    weights = runtime.footprint.weight_bytes
    whole = greedy(runtime, 3)
    sequence = runtime.new_sequence(64)
    runtime.step([(sequence, PROMPT)])
    runtime.sleep(1, True)
    assert account.held == runtime.footprint.overhead_bytes
    assert runtime.host_bytes >= weights + 64 * runtime.footprint.kv_bytes_per_token
    runtime.wake(round(fraction * weights), KV)
    assert torch.equal(runtime.step([(sequence, [int(whole[0].argmax())])])[0], whole[1])
    assert runtime.kv_used_bytes == 64 * runtime.footprint.kv_bytes_per_token


def test_dropped_sequences_cant_go_on(load: Load) -> None:
    runtime = load(LLAMA)
    sequence = runtime.new_sequence(8)
    runtime.sleep(1, False)
    runtime.wake(0, KV)
    with pytest.raises(ValueError, match="dropped by a sleep"):
        runtime.step([(sequence, [1])])
    runtime.free(sequence)


def test_a_sleeper_can_sleep_deeper_and_not_lighter(load: Load) -> None:
    runtime = load(LLAMA)
    whole = greedy(runtime, 2)
    runtime.sleep(1, False)
    runtime.sleep(2, False)
    assert runtime.host_bytes == 0
    runtime.sleep(1, False)
    assert runtime.host_bytes == 0
    runtime.wake(runtime.footprint.weight_bytes, KV)
    assert torch.equal(greedy(runtime, 2), whole)


@pytest.mark.parametrize("level", [1, 2])
def test_a_wake_without_room_leaves_it_asleep(level: int, load: Load, account: DeviceAccount) -> None:
    runtime = load(LLAMA)
    weights = runtime.footprint.weight_bytes
    whole = greedy(runtime, 2)
    budget = account.budget
    runtime.sleep(level, False)
    held, host = account.held, runtime.host_bytes
    account.set_budget(held + weights // 2)
    with pytest.raises(DeviceOutOfMemory):
        runtime.wake(weights, KV)
    assert (account.held, runtime.host_bytes) == (held, host)
    runtime.sleep(level, False)
    account.set_budget(budget)
    runtime.wake(weights, KV)
    assert torch.equal(greedy(runtime, 2), whole)


def test_kept_sequences_outlast_a_wake_without_room(load: Load, account: DeviceAccount) -> None:
    runtime = load(LLAMA)
    weights, budget = runtime.footprint.weight_bytes, account.budget
    whole = greedy(runtime, 2)
    sequence = runtime.new_sequence(64)
    runtime.step([(sequence, PROMPT)])
    runtime.sleep(1, True)
    held = account.held
    account.set_budget(held + sequence.n_bytes + weights // 2)
    with pytest.raises(DeviceOutOfMemory):
        runtime.wake(weights, KV)
    assert account.held == held
    account.set_budget(budget)
    runtime.wake(weights, KV)
    assert torch.equal(runtime.step([(sequence, [int(whole[0].argmax())])])[0], whole[1])


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("sleeps_again", [True, False])
def test_a_wake_that_breaks_off_can_be_tried_again(
    level: int, sleeps_again: bool, load: Load, account: DeviceAccount
) -> None:
    link = BreakableLink()
    runtime = load(LLAMA, link=link)
    weights = runtime.footprint.weight_bytes
    whole = greedy(runtime, 2)
    runtime.sleep(level, False)
    held = account.held
    link.breaks_after = len(link.chunks) + 20
    with pytest.raises(OSError, match="the link broke"):
        runtime.wake(weights, KV)
    if sleeps_again:
        runtime.sleep(level, False)
        assert account.held == held
    runtime.wake(weights, KV)
    assert torch.equal(greedy(runtime, 2), whole)


def test_a_wake_with_too_small_a_cache_for_the_kept_leaves_it_asleep(load: Load, account: DeviceAccount) -> None:
    runtime = load(LLAMA)
    runtime.new_sequence(10)
    runtime.sleep(1, True)
    held = account.held
    with pytest.raises(KvCacheFull, match=r"kept .* through the sleep"):
        runtime.wake(0, 9 * runtime.footprint.kv_bytes_per_token)
    assert account.held == held
    runtime.wake(0, 10 * runtime.footprint.kv_bytes_per_token)


def test_nothing_is_asked_of_a_sleeper(load: Load) -> None:
    runtime = load(LLAMA)
    sequence = runtime.new_sequence(8)
    runtime.sleep(1, True)
    for ask in (
        lambda: runtime.step([(sequence, [1])]),
        lambda: runtime.new_sequence(1),
        lambda: runtime.set_resident_bytes(0),
    ):
        with pytest.raises(RuntimeAsleep, match="wake it first"):
            ask()


def test_a_model_that_is_awake_cant_be_woken(load: Load) -> None:
    runtime = load(LLAMA)
    with pytest.raises(RuntimeAsleep, match="only a sleeping model"):
        runtime.wake(0, KV)


def test_weights_that_changed_meanwhile_are_not_served(load: Load, cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(resolve(LLAMA, cache).path, folder)
    runtime = load(f"file://{folder}")
    runtime.sleep(2, False)
    os.utime(folder / "model.safetensors", (0, 0))
    with pytest.raises(BadModel, match="have changed; start it anew"):
        runtime.wake(0, KV)


def test_a_closed_model_holds_nothing_and_closes_once_more(load: Load, account: DeviceAccount) -> None:
    runtime = load(LLAMA, resident_bytes=0)
    runtime.new_sequence(4)
    runtime.close()
    runtime.close()
    assert account.held == 0
    assert runtime.host_bytes == 0
    with pytest.raises(RuntimeAsleep):
        runtime.sleep(1, False)
