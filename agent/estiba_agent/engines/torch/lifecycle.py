"""What an engine does over its life: serve, drain, sleep, wake, change its residency. Facts and fences.

Everything here runs in the engine's thread, between steps. A control call either answers, or raises a `Refusal` with
the engine as it was. Only `drain` answers later: when nothing runs any more, at its deadline, or when it is cancelled.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

from estiba_agent.devices import DeviceOutOfMemory
from estiba_scheduler.domain import Reason

from ..wire import (
    DrainRequest,
    EngineLaunch,
    EnginePhase,
    EngineState,
    Measurement,
    MeasureRequest,
    ResidencyRequest,
    SleepRequest,
    WakeRequest,
)
from .batching import Batcher
from .canary import canary
from .device_memory import DeviceMemory
from .handing_back import handed_back_text, rejection_in
from .kv import KvCacheFull
from .measure import measure
from .refusal import Refusal, RefusalReason
from .request import Emit, GenerationRequest, Rejected, RejectionCode
from .seam import EngineRuntime

log = logging.getLogger(__name__)

ASLEEP = {EnginePhase.ASLEEP1: 1, EnginePhase.ASLEEP2: 2}
FAILING_STEPS = 3
"""Steps in a row that may fail before the engine calls itself failed."""


@dataclass(slots=True)
class _Drain:
    deadline: float
    replies: list[Future[EngineState]] = field(default_factory=list)


class Lifecycle:
    """Phase and control operations of one loaded engine."""

    def __init__(
        self,
        launch: EngineLaunch,
        runtime: EngineRuntime,
        memory: DeviceMemory,
        batcher: Batcher,
        url: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.phase = EnginePhase.LOADING
        self.generation = launch.generation
        self.load_s: float | None = None
        self.stopping = False
        self._runtime = runtime
        self._memory = memory
        self._batcher = batcher
        self._vocabulary = int(runtime.config.vocab_size)
        self._url = url
        self._clock = clock
        self._kv_bytes = launch.kv_bytes
        self._drain: _Drain | None = None
        self._canary: tuple[int, ...] = ()
        self._transition_s: dict[str, float] = {}
        self._failing_steps = 0
        self._error = ""
        self._error_reason = ""

    # -- serving ----------------------------------------------------------------------------------------------------

    def first_ready(self, load_s: float) -> None:
        """Keep the canary of the freshly loaded weights and take requests. Raises KvCacheFull without room."""
        self._canary = canary(self._runtime)
        self.load_s = load_s
        self.phase = EnginePhase.READY

    def take(self, request: GenerationRequest, emit: Emit) -> None:
        """Queue a request, or hand it back."""
        code = rejection_in(self.phase, self.stopping)
        if code is None:
            self._batcher.add(request, emit)
        else:
            emit(Rejected(code, handed_back_text(code)))

    def cancel(self, request_id: str) -> None:
        if self._batcher.cancel(request_id):
            log.info("request %s was cancelled by its client", request_id)

    @property
    def busy(self) -> bool:
        """There is a step to take."""
        return self.phase in (EnginePhase.READY, EnginePhase.DRAINING) and not self._batcher.idle

    def step(self) -> None:
        """One step of what runs. A failing step ends the requests in it, never the others' waiting."""
        try:
            self._batcher.step()
        except Exception as error:
            # whatever a step dies of, its clients must be told, and the rest go on
            log.exception("a step failed")
            out_of_memory = isinstance(error, DeviceOutOfMemory)
            self._error = f"a step failed: {error}"
            self._error_reason = (Reason.OUT_OF_MEMORY if out_of_memory else RefusalReason.INTERNAL).value
            self._batcher.end_running(RejectionCode.INTERNAL, "the engine failed while it generated; see its log")
            self._failing_steps += 1
            if self._failing_steps >= FAILING_STEPS:
                self.fail(self._error_reason, f"{FAILING_STEPS} steps in a row failed: {error}")
        else:
            self._failing_steps = 0

    def tick(self) -> None:
        """Answer a drain that is done, or end what still runs at its deadline."""
        if self._drain is None:
            return
        if self._batcher.running and self._clock() >= self._drain.deadline:
            code = RejectionCode.STOPPING if self.stopping else RejectionCode.DRAINING
            ended = self._batcher.end_running(code, "the engine was drained and its deadline passed")
            log.warning("ended %d running requests: the drain deadline passed", ended)
        if not self._batcher.running:
            self.phase = EnginePhase.DRAINED
            self._answer_drain()

    def seconds_to_deadline(self) -> float | None:
        """Until `tick` has something to do; None when it waits for nothing."""
        return None if self._drain is None else max(0.0, self._drain.deadline - self._clock())

    def fail(self, reason: str, message: str) -> None:
        """Serve no more. Everything that waits or runs is answered."""
        log.error("failed: %s: %s", reason, message)
        self.phase = EnginePhase.FAILED
        self._error, self._error_reason = message, reason
        self._batcher.hand_back_waiting(RejectionCode.FAILED, handed_back_text(RejectionCode.FAILED))
        self._batcher.end_running(RejectionCode.FAILED, "the engine failed")
        self._answer_drain()

    # -- control ----------------------------------------------------------------------------------------------------

    def drain(self, request: DrainRequest, reply: Future[EngineState]) -> None:
        """Hand back what waits, let finish what runs; `reply` is set when that is done."""
        self._fence(request.generation)
        self._refuse_failed()
        if self.phase not in (EnginePhase.READY, EnginePhase.DRAINING):
            reply.set_result(self.state())
            return
        self._begin_drain(request.deadline_s, RejectionCode.DRAINING).replies.append(reply)
        self.tick()

    def stop(self, grace_s: float) -> None:
        """Drain for good, whatever the phase; done when `stopped`."""
        self.stopping = True
        if self.phase in (EnginePhase.READY, EnginePhase.DRAINING):
            self._begin_drain(grace_s, RejectionCode.STOPPING)
        self.tick()

    @property
    def stopped(self) -> bool:
        return self.stopping and self._drain is None

    def resume(self) -> EngineState:
        """Take requests again after a drain. A drain that still waits is answered as cancelled."""
        self._refuse_failed()
        if self.phase in ASLEEP:
            raise Refusal(RefusalReason.WRONG_PHASE, f"the engine is {self.phase}; wake it instead")
        self.phase = EnginePhase.READY
        if self._drain is not None:
            replies, self._drain = self._drain.replies, None
            for reply in replies:
                reply.set_exception(Refusal(RefusalReason.DRAIN_CANCELLED, "the engine was told to resume meanwhile"))
        return self.state()

    def sleep(self, request: SleepRequest) -> EngineState:
        """Put the weights away. Refused while requests run or wait; sleeping deeper is allowed, lighter is not."""
        self._fence(request.generation)
        self._refuse_failed()
        self._refuse_busy("sleep")
        self.tick()
        asleep = ASLEEP.get(self.phase, 0)
        if asleep == request.level:
            return self.state()
        if asleep > request.level:
            raise Refusal(RefusalReason.WRONG_PHASE, f"the engine is {self.phase} already; wake it first")
        began = self._clock()
        with self._or_failed(f"the sleep to level {request.level}"):
            self._runtime.sleep(request.level, bool(request.keep_kv))
        self._transition_s[f"sleep{request.level}"] = self._clock() - began
        self.phase = EnginePhase.ASLEEP1 if request.level == 1 else EnginePhase.ASLEEP2
        return self.state()

    def wake(self, request: WakeRequest) -> EngineState:
        """Bring the weights back and serve. An engine that is awake already is left as it is."""
        self._fence(request.generation)
        self._refuse_failed()
        if self.phase is EnginePhase.READY:
            return self.state()
        if self.phase not in ASLEEP:
            raise Refusal(RefusalReason.WRONG_PHASE, f"the engine is {self.phase}, not asleep; resume it instead")
        level, before = ASLEEP[self.phase], self._memory.budget_bytes
        self._memory.require(self._need(request), request.budget_bytes)
        began = self._clock()
        self._memory.set_budget(request.budget_bytes)
        with self._or_failed(f"the wake from level {level}"):
            try:
                self._runtime.wake(request.resident_bytes, request.kv_bytes)
                verified = not request.verify or canary(self._runtime) == self._canary
            except (DeviceOutOfMemory, KvCacheFull) as error:
                self._runtime.sleep(level, False)
                self._memory.set_budget(before)
                reason = Reason.OUT_OF_MEMORY if isinstance(error, DeviceOutOfMemory) else RefusalReason.KV_FULL
                raise Refusal(reason, f"the wake ran out of room and the engine sleeps again: {error}") from error
        if not verified:
            message = f"after the wake from level {level} the canary generation differs from the first start's"
            self.fail(RefusalReason.CANARY_MISMATCH.value, message)
            raise Refusal(RefusalReason.CANARY_MISMATCH, message, status=500)
        self._kv_bytes = request.kv_bytes
        self._transition_s[f"wake{level}"] = self._clock() - began
        self._batcher.figures.forget_times()
        self.phase = EnginePhase.READY
        return self.state()

    def residency(self, request: ResidencyRequest) -> EngineState:
        """Change resident weights, KV budget and the device budget, between steps. On failure the old values hold."""
        self._fence(request.generation)
        self._refuse_failed()
        if self.phase in ASLEEP:
            raise Refusal(RefusalReason.WRONG_PHASE, f"the engine is {self.phase}; wake it with the residency wanted")
        if request.kv_bytes < self._runtime.kv_used_bytes:
            raise Refusal(
                RefusalReason.KV_IN_USE,
                f"{request.kv_bytes} bytes of KV cache were asked for, but running requests hold "
                f"{self._runtime.kv_used_bytes}; drain first or try again later",
            )
        began = self._clock()
        budget, resident, kv = self._memory.budget_bytes, self._runtime.resident_bytes, self._kv_bytes
        self._memory.set_budget(max(budget, request.budget_bytes))
        with self._or_failed("the change of residency"):
            try:
                self._resize(resident, request.resident_bytes, request.kv_bytes)
                self._memory.set_budget(request.budget_bytes)
            except (DeviceOutOfMemory, KvCacheFull, Refusal) as error:
                self._resize(self._runtime.resident_bytes, resident, kv)
                self._memory.set_budget(budget)
                raise Refusal(Reason.OUT_OF_MEMORY, f"the residency is unchanged: {error}") from error
        self._kv_bytes = request.kv_bytes
        self._transition_s["resize"] = self._clock() - began
        self._batcher.figures.forget_times()
        return self.state()

    def measure(self, request: MeasureRequest, checkpoint: Callable[[], None]) -> Measurement:
        """Time decode steps; refused while requests run or wait."""
        self._refuse_failed()
        self._refuse_busy("measure")
        if self.phase in ASLEEP:
            raise Refusal(RefusalReason.WRONG_PHASE, f"the engine is {self.phase}; wake it first")
        try:
            return measure(self._runtime, request, self._vocabulary, self._memory.peak_meter(), checkpoint)
        except KvCacheFull as error:
            raise Refusal(RefusalReason.KV_FULL, f"the sequences to measure don't fit: {error}") from error
        except DeviceOutOfMemory as error:
            raise Refusal(Reason.OUT_OF_MEMORY, f"the measurement ran out of room: {error}") from error

    # -- facts ------------------------------------------------------------------------------------------------------

    def state(self) -> EngineState:
        runtime, batcher, figures = self._runtime, self._batcher, self._batcher.figures
        return EngineState(
            phase=self.phase,
            generation=self.generation,
            url=self._url,
            footprint=runtime.footprint,
            resident_bytes=runtime.resident_bytes,
            resident_fraction=runtime.resident_fraction,
            device_bytes=runtime.device_bytes,
            host_bytes=runtime.host_bytes,
            kv_bytes=0 if self.phase in ASLEEP else self._kv_bytes,
            kv_used_bytes=runtime.kv_used_bytes,
            running=batcher.running,
            waiting=batcher.waiting,
            requests_total=figures.requests_total,
            tokens_total=figures.tokens_total,
            tpot_s=figures.tpot_s,
            tpot_batch=figures.tpot_batch,
            ttft_s=figures.ttft_s,
            last_request_at=figures.last_request_at,
            load_s=self.load_s,
            last_transition_s=dict(self._transition_s),
            error=self._error,
            error_reason=self._error_reason,
        )

    def kv_capacity_tokens(self) -> int:
        """Tokens that the KV budget in force holds when it is empty."""
        per_token = self._runtime.footprint.kv_bytes_per_token
        return self._kv_bytes // per_token if per_token else 2**31

    # -- inner ------------------------------------------------------------------------------------------------------

    def _begin_drain(self, deadline_s: float, code: RejectionCode) -> _Drain:
        handed_back = self._batcher.hand_back_waiting(code, handed_back_text(code))
        log.info("draining: %d run, %d handed back", self._batcher.running, handed_back)
        self.phase = EnginePhase.DRAINING
        self._drain = self._drain or _Drain(0.0)
        self._drain.deadline = self._clock() + deadline_s
        return self._drain

    def _answer_drain(self) -> None:
        if self._drain is not None:
            replies, self._drain = self._drain.replies, None
            for reply in replies:
                reply.set_result(self.state())

    def _resize(self, resident: int, wanted: int, kv_bytes: int) -> None:
        """Give before taking, so that the room which one frees is there for the other."""
        if wanted < resident:
            self._runtime.set_resident_bytes(wanted)
            self._runtime.set_kv_bytes(kv_bytes)
        else:
            self._runtime.set_kv_bytes(kv_bytes)
            self._runtime.set_resident_bytes(wanted)

    @contextmanager
    def _or_failed(self, what: str) -> Iterator[None]:
        """Weights that are half moved can't be served: what is not refused in good order ends the engine."""
        try:
            yield
        except Refusal:
            raise
        except Exception as error:
            log.exception("%s failed", what)
            out_of_memory = isinstance(error, DeviceOutOfMemory | MemoryError)
            reason = (Reason.OUT_OF_MEMORY if out_of_memory else RefusalReason.INTERNAL).value
            message = f"{what} failed: {type(error).__name__}: {error}"
            self.fail(reason, message)
            raise Refusal(RefusalReason.FAILED, f"{message}; restart the engine", status=500) from error

    def _need(self, request: WakeRequest) -> int:
        """Device bytes that the engine will hold at most after the wake."""
        footprint = self._runtime.footprint
        resident = min(max(request.resident_bytes, footprint.fixed_bytes), footprint.weight_bytes)
        buffers = footprint.stream_buffer_bytes if resident < footprint.weight_bytes else 0
        return resident + buffers + request.kv_bytes + footprint.overhead_bytes + footprint.activation_bytes

    def _fence(self, generation: int) -> None:
        """Refuse what is older than the newest command seen; 0 is a caller that doesn't say."""
        if generation and generation < self.generation:
            raise Refusal(
                Reason.STALE_GENERATION, f"generation {generation} is older than {self.generation}, the newest seen"
            )
        self.generation = max(self.generation, generation)

    def _refuse_failed(self) -> None:
        if self.stopping:
            raise Refusal(RefusalReason.STOPPING, "the engine is stopping")
        if self.phase is EnginePhase.FAILED:
            raise Refusal(RefusalReason.FAILED, f"the engine has failed, restart it: {self._error}")

    def _refuse_busy(self, what: str) -> None:
        if not self._batcher.idle:
            raise Refusal(
                RefusalReason.REQUESTS_RUNNING,
                f"can't {what}: {self._batcher.running} requests run and {self._batcher.waiting} wait; drain first",
            )
