"""What the agent and an engine process say to each other over the engine's unix socket (JSON over HTTP).

| call | body | answer |
| --- | --- | --- |
| GET  /v1/identity   |                | Identity |
| GET  /v1/state      |                | EngineState |
| POST /v1/residency  | ResidencyRequest | EngineState, when done |
| POST /v1/drain      | DrainRequest   | EngineState, when nothing runs any more or the deadline passed |
| POST /v1/resume     |                | EngineState: takes requests again |
| POST /v1/sleep      | SleepRequest   | EngineState (refused with 409 while requests run: drain first) |
| POST /v1/wake       | WakeRequest    | EngineState; 409 with a reason when the memory is not there |
| POST /v1/measure    | MeasureRequest | Measurement (refused with 409 while requests run) |
| POST /v1/stop       |                | 202, then the process ends |

An error is `{"error": {"reason": <Reason or code>, "message": ...}}`. Every answer carries the headers
`x-estiba-boot-id` and `x-estiba-pid`, so that a caller can tell that it speaks to the engine it means. A call that
carries `x-estiba-boot-id` itself is refused with 421 by any other engine.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pydantic import Field

from estiba_scheduler.domain import Footprint, ModelSource, Value

BOOT_ID_HEADER = "x-estiba-boot-id"
PID_HEADER = "x-estiba-pid"


class EngineLaunch(Value):
    """Everything an engine process is started with; written to a file, whose path is its one argument."""

    instance: str
    deployment: str
    served_name: str
    model: ModelSource
    device: str = Field(description="device uuid")
    device_kind: str = "cpu"
    ledger_dir: Path | None = Field(default=None, description="cpu devices: the ledger that accounts its memory")
    device_memory_bytes: int
    link_file: Path | None = Field(default=None, description="cpu devices: the shared clock of the host link")
    link_bytes_per_s: float | None = None
    resident_bytes: int | None = Field(default=None, description="None: everything")
    kv_bytes: int
    budget_bytes: int
    control_socket: Path
    log_file: Path
    model_cache: Path
    compute_threads: int = 1
    chunk_bytes: int = 4 * 1024 * 1024
    generation: int = 1


class Identity(Value):
    pid: int
    started_at: float
    boot_id: str
    instance: str
    served_name: str
    model_digest: str
    engine: str
    engine_version: str
    generation: int


class EnginePhase(StrEnum):
    LOADING = "Loading"
    READY = "Ready"
    DRAINING = "Draining"  # running requests go on, new ones are handed back (503, x-estiba-handed-back: 1)
    DRAINED = "Drained"
    ASLEEP1 = "Asleep1"
    ASLEEP2 = "Asleep2"
    FAILED = "Failed"


class EngineState(Value):
    phase: EnginePhase
    generation: int = 0
    url: str | None = Field(default=None, description="OpenAI endpoint on loopback, http://127.0.0.1:PORT")
    footprint: Footprint | None = None
    resident_bytes: int = Field(default=0, description="weight bytes that are on the device, counted")
    resident_fraction: float = 0.0
    device_bytes: int = 0
    host_bytes: int = Field(default=0, description="offloaded, sleeping and saved bytes in host memory")
    kv_bytes: int = 0
    kv_used_bytes: int = 0
    running: int = 0
    waiting: int = 0
    requests_total: int = 0
    tokens_total: int = 0
    tpot_s: float | None = Field(default=None, description="median of the latest decode steps")
    tpot_batch: float | None = Field(default=None, description="mean batch of those steps")
    ttft_s: float | None = None
    last_request_at: float | None = None
    load_s: float | None = Field(default=None, description="from process start to first Ready")
    last_transition_s: dict[str, float] = Field(
        default_factory=dict, description="sleep1, wake1, sleep2, wake2, resize"
    )
    error: str = ""
    error_reason: str = ""


class ResidencyRequest(Value):
    resident_bytes: int
    kv_bytes: int
    budget_bytes: int
    generation: int


class DrainRequest(Value):
    deadline_s: float
    generation: int = 0


class SleepRequest(Value):
    level: int = Field(ge=1, le=2)
    keep_kv: bool | None = Field(default=None, description="None: whichever costs less")
    generation: int = 0


class WakeRequest(Value):
    resident_bytes: int
    kv_bytes: int
    budget_bytes: int
    generation: int = 0
    verify: bool = Field(default=True, description="compare a canary generation with the one kept from the first start")


class MeasureRequest(Value):
    """Time decode steps on synthetic sequences, with the residency in force."""

    batch: int = Field(default=1, ge=1, le=64)
    context_tokens: int = Field(default=32, ge=1)
    steps: int = Field(default=8, ge=2, le=256)
    warmup: int = Field(default=2, ge=0)


class Measurement(Value):
    batch: int
    context_tokens: int
    resident_fraction: float
    resident_bytes: int
    step_s: tuple[float, ...] = Field(description="decode step times, in order, without the warm-up")
    compute_s: tuple[float, ...] = Field(default=(), description="of each step: time not spent waiting for weights")
    prefill_s: float = Field(description="time of prefilling all sequences to context_tokens")
    streamed_bytes_per_step: int = 0
    peak_device_bytes: int = 0
    activation_bytes: int = 0


class EngineCapabilities(Value):
    """What the planner may ask of this kind of engine."""

    engine: str
    sleep_levels: tuple[int, ...] = ()
    resize_while_serving: bool = False
    offload_mechanism: str | None = None
    keeps_kv_asleep: bool = False
