"""What a runtime is given in these tests: launch files, an unlimited link, and links that a test has in its hand."""

from __future__ import annotations

import threading
from collections.abc import Sequence as Items
from pathlib import Path
from typing import Any

import torch

from estiba_agent.devices import HostLinkClock
from estiba_agent.engines.torch.runtime import ModelRuntime
from estiba_agent.engines.wire import EngineLaunch
from estiba_scheduler.domain import ModelSource

DEVICE_BYTES = 64 * 1024 * 1024
LINKLESS = HostLinkClock(None, None)
SIZES = "hidden=64&layers=6&intermediate=192&heads=4&tokenizer=bytes"
LLAMA = f"random://llama?{SIZES}&kv_heads=2"
QWEN3 = f"random://qwen3?{SIZES}&kv_heads=2"
GPT_NEOX = f"random://gpt_neox?{SIZES}"
PROMPT = list(b"The capital of France is")


def a_launch(uri: str, cache: Path, **changes: Any) -> EngineLaunch:
    model = {name: changes.pop(name) for name in ("dtype", "context_tokens", "max_batch", "digest") if name in changes}
    fields: dict[str, Any] = {
        "instance": "a-1",
        "deployment": "default/a",
        "served_name": "a",
        "model": ModelSource(**{"uri": uri, "context_tokens": 256} | model),
        "device": "cpu-0",
        "device_memory_bytes": DEVICE_BYTES,
        "kv_bytes": 4 * 1024 * 1024,
        "budget_bytes": DEVICE_BYTES,
        "control_socket": Path("c.sock"),
        "log_file": Path("log.txt"),
        "model_cache": cache,
        "chunk_bytes": 16 * 1024,
    }
    return EngineLaunch(**fields | changes)


def greedy(runtime: ModelRuntime, tokens: int, prompt: Items[int] = PROMPT) -> torch.Tensor:
    """The logits of `tokens` greedy steps, `[tokens, vocab]`."""
    sequence = runtime.new_sequence(len(prompt) + tokens)
    logits: list[torch.Tensor] = []
    feed = list(prompt)
    for _ in range(tokens):
        row = runtime.step([(sequence, feed)])[0]
        logits.append(row)
        feed = [int(row.argmax())]
    runtime.free(sequence)
    return torch.stack(logits)


class BreakableLink:
    """A double of the host link that fails when a test says so: while `error` is set, or once, after a chunk."""

    def __init__(self, breaks_after: int | None = None) -> None:
        self.error: Exception | None = None
        self.breaks_after = breaks_after
        self.chunks: list[int] = []

    def acquire(self, n_bytes: int) -> None:
        if self.error is not None:
            raise self.error
        if self.breaks_after is not None and len(self.chunks) >= self.breaks_after:
            self.breaks_after = None
            raise OSError("the link broke")
        self.chunks.append(n_bytes)


class GatedLink:
    """A double of the host link that lets as many chunks through as a test allows."""

    def __init__(self) -> None:
        self.asked = 0
        self._allowed = threading.Semaphore(0)

    def acquire(self, n_bytes: int) -> None:
        self.asked += 1
        if not self._allowed.acquire(timeout=30):
            raise TimeoutError("the test never opened the gate")

    def allow(self, chunks: int) -> None:
        self._allowed.release(chunks)
