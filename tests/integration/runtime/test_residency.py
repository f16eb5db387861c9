"""Weights on and off the device: the same answers, never more memory than accounted."""

from __future__ import annotations

import pytest
import torch

from estiba_agent.devices import DeviceAccount, DeviceOutOfMemory
from estiba_agent.engines.torch.runtime import ModelRuntime
from estiba_agent.offload import StreamFailed

from .conftest import Load
from .machine import GPT_NEOX, LLAMA, PROMPT, QWEN3, BreakableLink, greedy

ALL = pytest.mark.parametrize("uri", [LLAMA, QWEN3, GPT_NEOX])
FRACTIONS = (0.5, 0.0, 0.8, 0.3, 0.95, 1.0)


def at(runtime: ModelRuntime, fraction: float) -> int:
    return runtime.set_resident_bytes(round(fraction * runtime.footprint.weight_bytes))


@ALL
def test_any_residency_gives_the_same_logits_to_the_bit(uri: str, load: Load) -> None:
    runtime = load(uri)
    whole = greedy(runtime, 6)
    for fraction in FRACTIONS:
        at(runtime, fraction)
        assert torch.equal(greedy(runtime, 6), whole), f"at a resident fraction of {fraction}"


@ALL
def test_a_sequence_goes_on_the_same_while_the_residency_changes(uri: str, load: Load) -> None:
    runtime = load(uri)
    whole = greedy(runtime, len(FRACTIONS) + 1)
    sequence = runtime.new_sequence(64)
    row = runtime.step([(sequence, PROMPT)])[0]
    for step, fraction in enumerate(FRACTIONS):
        assert torch.equal(row, whole[step])
        at(runtime, fraction)
        row = runtime.step([(sequence, [int(row.argmax())])])[0]
    assert torch.equal(row, whole[-1])


def test_a_model_that_is_loaded_offloaded_answers_as_a_resident_one(load: Load) -> None:
    whole = greedy(load(LLAMA), 4)
    assert torch.equal(greedy(load(LLAMA, resident_bytes=0), 4), whole)


@ALL
def test_the_account_holds_what_is_on_the_device(uri: str, load: Load, account: DeviceAccount) -> None:
    runtime = load(uri)
    footprint = runtime.footprint
    sequence = runtime.new_sequence(10)
    for fraction in FRACTIONS:
        resident = at(runtime, fraction)
        ring = footprint.stream_buffer_bytes if resident < footprint.weight_bytes else 0
        kv = 10 * footprint.kv_bytes_per_token
        assert account.held == resident + ring + kv + footprint.overhead_bytes
        assert runtime.device_bytes == account.held
    runtime.free(sequence)
    runtime.close()
    assert account.held == 0


def test_no_step_or_change_holds_more_than_the_larger_of_before_and_after(load: Load, account: DeviceAccount) -> None:
    runtime = load(LLAMA)
    for fraction in FRACTIONS:
        before = account.held
        account.reset_peak()
        at(runtime, fraction)
        assert account.peak == max(before, account.held)
        account.reset_peak()
        greedy(runtime, 2)
        kv = (len(PROMPT) + 2) * runtime.footprint.kv_bytes_per_token
        assert account.peak <= account.held + kv + runtime.footprint.activation_bytes


def test_as_many_blocks_are_resident_as_fit(load: Load) -> None:
    runtime = load(LLAMA)
    footprint = runtime.footprint
    block = footprint.layer_bytes[0]
    assert runtime.set_resident_bytes(footprint.fixed_bytes + 3 * block) == footprint.fixed_bytes + 3 * block
    assert runtime.set_resident_bytes(footprint.fixed_bytes + 4 * block - 1) == footprint.fixed_bytes + 3 * block
    assert runtime.set_resident_bytes(0) == footprint.fixed_bytes
    assert runtime.set_resident_bytes(10 * footprint.weight_bytes) == footprint.weight_bytes
    assert runtime.resident_fraction == 1.0


def test_host_memory_is_what_is_offloaded_times_the_factor(load: Load) -> None:
    runtime = load(LLAMA)
    assert runtime.host_bytes == 0
    for fraction in (0.7, 0.2):
        offloaded = runtime.footprint.weight_bytes - at(runtime, fraction)
        assert runtime.host_bytes == pytest.approx(offloaded * runtime.footprint.host_factor, rel=0.01)
    at(runtime, 1.0)
    assert runtime.host_bytes == 0


def test_each_step_streams_what_is_offloaded_and_an_idle_model_streams_nothing(load: Load) -> None:
    link = BreakableLink()
    runtime = load(LLAMA, link=link)
    offloaded = runtime.footprint.weight_bytes - at(runtime, 0.3)
    sequence = runtime.new_sequence(64)
    link.chunks.clear()
    for _ in range(5):
        runtime.step([(sequence, [1])])
        assert runtime.last_step.streamed_bytes == offloaded
    runtime.set_kv_bytes(1024 * 1024)  # no reason to copy anything
    ring = runtime.footprint.stream_buffer_bytes
    assert 5 * offloaded - ring <= sum(link.chunks) <= 5 * offloaded + ring
    at(runtime, 1.0)
    runtime.step([(sequence, [1])])
    assert runtime.last_step.streamed_bytes == 0
    assert runtime.last_step.wait_s == 0.0


def test_chunks_are_no_larger_than_asked(load: Load) -> None:
    link = BreakableLink()
    runtime = load(LLAMA, link=link, chunk_bytes=10_000)
    at(runtime, 0.4)
    greedy(runtime, 2)
    assert max(link.chunks) == 10_000


def test_a_residency_without_room_changes_nothing(load: Load, account: DeviceAccount) -> None:
    runtime = load(LLAMA)
    whole = greedy(runtime, 3)
    resident = at(runtime, 0.4)
    held = account.held
    account.set_budget(held + 1024 * 1024)
    account.grow(1024 * 1024)  # somebody else's
    with pytest.raises(DeviceOutOfMemory):
        at(runtime, 1.0)
    assert runtime.resident_bytes == resident
    account.shrink(1024 * 1024)
    assert account.held == held
    assert torch.equal(greedy(runtime, 3), whole)


def test_a_load_without_room_leaves_nothing_behind(load: Load, account: DeviceAccount) -> None:
    account.set_budget(100 * 1024)
    with pytest.raises(DeviceOutOfMemory):
        load(LLAMA)
    assert account.held == 0


def test_a_load_that_breaks_off_leaves_nothing_behind(load: Load, account: DeviceAccount) -> None:
    with pytest.raises(OSError, match="the link broke"):
        load(LLAMA, link=BreakableLink(breaks_after=20))
    assert account.held == 0


def test_a_change_that_breaks_off_leaves_a_model_that_answers(load: Load, account: DeviceAccount) -> None:
    link = BreakableLink()
    runtime = load(LLAMA, link=link)
    whole = greedy(runtime, 3)
    for wanted in (0.2, 1.0):
        link.breaks_after = len(link.chunks) + 20
        with pytest.raises(OSError, match="the link broke"):
            at(runtime, wanted)
        assert torch.equal(greedy(runtime, 3), whole)
        ring = runtime.footprint.stream_buffer_bytes if runtime.resident_fraction < 1 else 0
        assert account.held == runtime.resident_bytes + ring + runtime.footprint.overhead_bytes
        at(runtime, wanted)


def test_a_broken_link_fails_the_step_and_the_next_goes_on(load: Load) -> None:
    link = BreakableLink()
    runtime = load(LLAMA, link=link)
    whole = greedy(runtime, 3)
    at(runtime, 0.2)
    sequence = runtime.new_sequence(64)
    link.error = OSError("the link is down")
    with pytest.raises(StreamFailed, match="the link is down"):
        runtime.step([(sequence, PROMPT)])
    link.error = None
    runtime.free(sequence)
    assert torch.equal(greedy(runtime, 3), whole)


def test_a_step_that_breaks_off_in_the_middle_leaves_sequences_as_they_were(load: Load) -> None:
    runtime = load(LLAMA)
    whole = greedy(runtime, 2)
    at(runtime, 0.3)
    sequence = runtime.new_sequence(64)
    broken = runtime._skeleton.blocks[3].register_forward_pre_hook(_break)
    with pytest.raises(ZeroDivisionError):
        runtime.step([(sequence, PROMPT)])
    broken.remove()
    assert sequence.length == 0
    assert torch.equal(runtime.step([(sequence, PROMPT)])[0], whole[0])


def _break(*_: object) -> None:
    raise ZeroDivisionError
