"""Builders for engine tests: requests, launches, lifecycles on a scripted runtime with a real device account."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from estiba_agent.devices import DeviceAccount, DeviceLedger
from estiba_agent.engines.torch.batching import Batcher, BatchLimits
from estiba_agent.engines.torch.device_memory import DeviceMemory
from estiba_agent.engines.torch.lifecycle import Lifecycle
from estiba_agent.engines.torch.loading import LoadedModel
from estiba_agent.engines.torch.request import (
    Event,
    Finished,
    GenerationRequest,
    Rejected,
    SamplingParams,
    TextDelta,
)
from estiba_agent.engines.wire import EngineLaunch
from estiba_scheduler.domain import ModelSource

from .scripted_runtime import END, KV_PER_TOKEN, ScriptedRuntime

DEVICE_BYTES = 20_000
KV_BYTES = 5_000
BUDGET_BYTES = 10_000
CONTEXT = 200

_ids = count()


@dataclass
class ManualClock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Listener:
    """Whoever waits for one answer."""

    events: list[Event] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def end(self) -> Finished | Rejected | None:
        last = self.events[-1] if self.events else None
        return last if isinstance(last, Finished | Rejected) else None


def a_request(prompt: str = "hi", **changes: Any) -> GenerationRequest:
    changes.setdefault("sampling", SamplingParams(temperature=0))
    changes.setdefault("id", f"r{next(_ids)}")
    return GenerationRequest(prompt=tuple(prompt.encode()), **changes)


def a_launch(directory: Path, **changes: Any) -> EngineLaunch:
    values: dict[str, Any] = {
        "instance": "scripted-0001",
        "deployment": "default/scripted",
        "served_name": "scripted",
        "model": ModelSource(uri="random://scripted", context_tokens=CONTEXT, max_batch=4),
        "device": "cpu-0",
        "ledger_dir": directory / "ledger",
        "device_memory_bytes": DEVICE_BYTES,
        "kv_bytes": KV_BYTES,
        "budget_bytes": BUDGET_BYTES,
        "control_socket": directory / "c.sock",
        "log_file": directory / "log.txt",
        "model_cache": directory / "models",
    }
    return EngineLaunch(**{**values, **changes})


def a_batcher(
    runtime: ScriptedRuntime,
    clock: ManualClock | None = None,
    kv_capacity_tokens: int = 1000,
    **limits: Any,
) -> Batcher:
    limits.setdefault("context_tokens", CONTEXT)
    limits.setdefault("max_batch", 4)
    return Batcher(runtime, BatchLimits(**limits), frozenset({END}), lambda: kv_capacity_tokens, clock or ManualClock())


@dataclass
class Arranged:
    """A lifecycle that is Ready, and everything around it."""

    lifecycle: Lifecycle
    runtime: ScriptedRuntime
    account: DeviceAccount
    ledger: DeviceLedger
    clock: ManualClock

    def ask(self, prompt: str = "hi", **changes: Any) -> Listener:
        listener = Listener()
        self.lifecycle.take(a_request(prompt, **changes), listener)
        return listener

    def run(self, steps: int = 1000) -> None:
        for _ in range(steps):
            self.lifecycle.tick()
            if not self.lifecycle.busy:
                return
            self.lifecycle.step()

    def take_the_rest(self) -> DeviceAccount:
        """Somebody else holds all that is free on the device."""
        other = self.ledger.account("another", DEVICE_BYTES)
        other.grow(self.ledger.free_bytes())
        return other


def a_loaded_model(
    launch: EngineLaunch, says: dict[str, str | list[int]] | None = None, kv_bytes: int = KV_BYTES
) -> LoadedModel:
    """What a load gives: a scripted runtime on the launch's device ledger."""
    assert launch.ledger_dir is not None
    ledger = DeviceLedger(launch.ledger_dir, launch.device_memory_bytes)
    account = ledger.account(launch.instance, launch.budget_bytes)
    runtime = ScriptedRuntime(says, account=account, kv_bytes=kv_bytes)

    def close() -> None:
        runtime.close()
        account.close()

    return LoadedModel(runtime, DeviceMemory.on(ledger, account), close)


def a_lifecycle(directory: Path, says: dict[str, str | list[int]] | None = None) -> Arranged:
    launch = a_launch(directory)
    ledger = DeviceLedger(directory / "ledger", launch.device_memory_bytes)
    account = ledger.account(launch.instance, launch.budget_bytes)
    runtime = ScriptedRuntime(says, account=account, kv_bytes=launch.kv_bytes)
    clock = ManualClock()
    batcher = Batcher(
        runtime,
        BatchLimits(context_tokens=CONTEXT, max_batch=4),
        frozenset({END}),
        lambda: KV_BYTES // KV_PER_TOKEN,
        clock,
    )
    lifecycle = Lifecycle(launch, runtime, DeviceMemory.on(ledger, account), batcher, "http://127.0.0.1:1", clock)
    lifecycle.first_ready(1.0)
    return Arranged(lifecycle, runtime, account, ledger, clock)
