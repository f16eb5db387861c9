"""Continuous batching: who is in the next step, and with which tokens.

Each step carries one token of every sequence that decodes and, within `chunk_tokens`, the next pieces of prompts, so
that a long prompt never freezes the streams that run. A request is admitted, first come first served, when its KV
cache for prompt and answer can be reserved whole: what has started can always finish.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from .figures import ServingFigures
from .generation import Generation
from .kv import KvCacheFull
from .request import Emit, GenerationRequest, Rejected, RejectionCode
from .seam import StepRuntime

log = logging.getLogger(__name__)

PREFILL_CHUNK_TOKENS = 128
WAITING_LIMIT = 256
WAITING_DEADLINE_S = 600.0


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Bounds of one engine. `context_tokens` counts prompt and answer together."""

    context_tokens: int
    max_batch: int
    chunk_tokens: int = PREFILL_CHUNK_TOKENS
    waiting: int = WAITING_LIMIT
    waiting_s: float = WAITING_DEADLINE_S


class Batcher:
    """Waiting and running requests of one runtime. Not thread-safe: the engine's thread owns it."""

    def __init__(
        self,
        runtime: StepRuntime,
        limits: BatchLimits,
        end_tokens: frozenset[int] = frozenset(),
        kv_capacity_tokens: Callable[[], int] | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.figures = ServingFigures()
        self._runtime = runtime
        self._limits = limits
        self._end_tokens = end_tokens
        self._kv_capacity_tokens = kv_capacity_tokens or (lambda: limits.context_tokens)
        self._clock = clock
        self._wall_clock = wall_clock
        self._waiting: deque[Generation] = deque()
        self._running: list[Generation] = []

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._running

    def add(self, request: GenerationRequest, emit: Emit) -> None:
        """Take a request into the queue, or reject it through `emit`: too long, or the queue is full."""
        if len(self._waiting) >= self._limits.waiting:
            emit(Rejected(RejectionCode.QUEUE_FULL, f"{len(self._waiting)} requests are waiting already; retry later"))
            return
        prompt = len(request.prompt)
        if prompt + (request.max_tokens or 1) > self._limits.context_tokens:
            message = self._too_long(prompt, request.max_tokens or 1, self._limits.context_tokens)
            emit(Rejected(RejectionCode.CONTEXT_LENGTH, message))
            return
        self.figures.requests_total += 1
        self.figures.last_request_at = self._wall_clock()
        self._waiting.append(Generation(request, emit, self._clock()))

    def cancel(self, request_id: str) -> bool:
        """Forget a request and free what it holds; False when it is not here (any more)."""
        for generation in self._running:
            if generation.request.id == request_id:
                self._retire(generation)
                return True
        for generation in self._waiting:
            if generation.request.id == request_id:
                self._waiting.remove(generation)
                return True
        return False

    def hand_back_waiting(self, code: RejectionCode, message: str) -> int:
        """Give every request that has not started back; return how many."""
        count = len(self._waiting)
        while self._waiting:
            self._waiting.popleft().reject(code, message)
        return count

    def end_running(self, code: RejectionCode, message: str) -> int:
        """End what runs: handed back with `code` where the client has seen nothing, else with an error."""
        count = len(self._running)
        for generation in list(self._running):
            if generation.seen:
                generation.reject(RejectionCode.INTERNAL, f"the answer was cut off: {message}")
            else:
                generation.reject(code, message)
            self._retire(generation)
        return count

    def step(self) -> None:
        """Admit who fits and run one step. On an exception of the runtime, call `end_running` and go on."""
        self._expire()
        self._admit()
        items = self._compose()
        if not items:
            return
        logits = self._runtime.step([(generation.sequence, tokens) for generation, tokens in items])
        logits = logits.float().cpu()
        if all(generation.decoding for generation, _ in items):
            self.figures.decode_step(self._runtime.last_step.step_s, len(items))
        for (generation, tokens), row in zip(items, logits, strict=True):
            del generation.pending[: len(tokens)]
            if not generation.pending:
                self._accept(generation, row)

    def _accept(self, generation: Generation, row: object) -> None:
        first = not generation.decoding
        try:
            generation.accept(row, self._end_tokens)
        except Exception as error:
            # one answer that can't go on (logits that are not finite, say) is no reason to end the others
            log.exception("request %s failed", generation.request.id)
            generation.reject(RejectionCode.INTERNAL, f"picking the next token failed: {error}")
            self._retire(generation)
            return
        self.figures.tokens_total += 1
        if first:
            self.figures.first_token(self._clock() - generation.arrived_at)
        if generation.finished:
            self._retire(generation)

    def _retire(self, generation: Generation) -> None:
        self._running.remove(generation)
        self._runtime.free(generation.sequence)
        self.figures.last_request_at = self._wall_clock()

    def _compose(self) -> list[tuple[Generation, list[int]]]:
        """The tokens of the next step: all that decode, then prompts in order of arrival while the chunk lasts."""
        items = [(g, g.pending[:1]) for g in self._running if g.decoding]
        room = self._limits.chunk_tokens
        for generation in self._running:
            if not generation.decoding and room > 0:
                tokens = generation.pending[:room]
                room -= len(tokens)
                items.append((generation, tokens))
        return items

    def _expire(self) -> None:
        """The head of the queue has waited longest."""
        while self._waiting and self._clock() - self._waiting[0].arrived_at > self._limits.waiting_s:
            self._waiting.popleft().reject(
                RejectionCode.QUEUE_FULL, f"no room for {self._limits.waiting_s:.0f} s; retry later"
            )

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._limits.max_batch:
            generation = self._waiting[0]
            if not self._reserve(generation):
                return
            self._waiting.popleft()
            if generation.sequence is not None:
                self._running.append(generation)

    def _reserve(self, generation: Generation) -> bool:
        """Reserve KV for the whole request. False: wait for room. One that can never fit is rejected (True)."""
        prompt = len(generation.request.prompt)
        capacity = min(self._limits.context_tokens, self._kv_capacity_tokens())
        limit = generation.request.max_tokens or max(1, capacity - prompt)
        if prompt + limit > capacity:
            generation.reject(RejectionCode.CONTEXT_LENGTH, self._too_long(prompt, limit, capacity))
            return True
        try:
            sequence = self._runtime.new_sequence(prompt + limit)
        except KvCacheFull as full:
            if self._running:
                return False
            # within the budget, and nothing else runs: it is the device that is full, which may pass
            generation.reject(RejectionCode.QUEUE_FULL, f"no room for {prompt + limit} tokens now: {full}")
            return True
        generation.admit(sequence, limit, self._runtime.tokenizer)
        return True

    def _too_long(self, prompt: int, limit: int, capacity: int) -> str:
        what = "the context" if capacity == self._limits.context_tokens else "the KV cache budget in force"
        return (
            f"{prompt} prompt tokens and up to {limit} generated tokens make {prompt + limit}, "
            f"but {what} is {capacity} tokens; shorten the prompt or lower max_tokens"
        )
