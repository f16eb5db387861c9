"""The engine's thread: the only one that touches the model.

Others leave commands and requests in its inbox, and get a future or events back. The thread takes what is in the inbox
between steps and sleeps when there is nothing to do. Free of torch until it has started, so that the HTTP faces answer
while torch is imported and the weights are loaded.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ..wire import DrainRequest, EngineLaunch, EnginePhase, EngineState, Measurement, MeasureRequest
from .handing_back import handed_back_text, rejection_in
from .refusal import Refusal, RefusalReason
from .request import Emit, GenerationRequest, Rejected, RejectionCode

if TYPE_CHECKING:
    from .lifecycle import Lifecycle
    from .loading import LoadedModel

log = logging.getLogger(__name__)

T = TypeVar("T")

INBOX_LIMIT = 1024
"""Requests that may wait for the thread to look up from a long piece of work (a wake, a measurement)."""

FAILED_LINGER_S = 30.0
"""How long a failed engine can still be asked for its reason before its process ends."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What the HTTP faces need to know of the loaded model. The tokenizer is theirs alone (used by one thread)."""

    tokenizer: Any
    vocabulary: int
    context_tokens: int
    digest: str


class EngineLoop:
    """Owns the thread. Every public method may be called from any thread and returns at once."""

    def __init__(
        self,
        launch: EngineLaunch,
        url: str,
        load: Callable[[EngineLaunch], LoadedModel],
        started_at: float | None = None,
        failed_linger_s: float = FAILED_LINGER_S,
    ) -> None:
        self.launch = launch
        self.model: ServedModel | None = None
        self.ended: Future[EngineState] = Future()
        """The last state, once the thread has let go of the model."""
        self._url = url
        self._load = load
        self._started_at = started_at if started_at is not None else time.time()
        self._failed_linger_s = failed_linger_s
        self._failed_at: float | None = None
        self._lifecycle: Lifecycle | None = None
        self._inbox: deque[Callable[[Lifecycle], None]] = deque()
        self._news = threading.Condition()
        self._closed = False
        self._stop_asked = threading.Event()
        self._state = EngineState(phase=EnginePhase.LOADING, generation=launch.generation, url=url)
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self.ended.set_running_or_notify_cancel()  # whoever stops waiting for it doesn't cancel it
        self._thread.start()

    # -- asked from other threads -----------------------------------------------------------------------------------

    def state(self) -> EngineState:
        """As it was after the latest step or command."""
        return self._state

    def fresh_state(self) -> Future[EngineState]:
        """As the thread sees it when it next looks up; while it has no model, as known."""
        if self._lifecycle is None:
            known: Future[EngineState] = Future()
            known.set_result(self._state)
            return known
        return self.call(lambda lifecycle: lifecycle.state())

    def call(self, command: Callable[[Lifecycle], T]) -> Future[T]:
        """Run `command` between two steps. Fails with Refusal where the engine can't take it."""
        reply: Future[T] = Future()

        def run(lifecycle: Lifecycle) -> None:
            if not reply.set_running_or_notify_cancel():
                return
            try:
                result = command(lifecycle)
            except Refusal as refusal:
                reply.set_exception(refusal)
            except Exception as error:
                log.exception("a control call failed")
                reply.set_exception(
                    Refusal(RefusalReason.INTERNAL, f"{type(error).__name__}: {error}; see the engine's log", 500)
                )
            else:
                self._publish()  # before the caller acts on the answer
                reply.set_result(result)

        self._leave(run, reply)
        return reply

    def drain(self, request: DrainRequest) -> Future[EngineState]:
        """Set when nothing runs any more, or at the deadline."""
        reply: Future[EngineState] = Future()

        def run(lifecycle: Lifecycle) -> None:
            if not reply.set_running_or_notify_cancel():
                return
            try:
                lifecycle.drain(request, reply)
            except Refusal as refusal:
                reply.set_exception(refusal)

        self._leave(run, reply)
        return reply

    def measure(self, request: MeasureRequest, given_up: threading.Event) -> Future[Measurement]:
        """Refused between two of its steps once `given_up` is set or the engine is told to stop."""

        def checkpoint() -> None:
            if given_up.is_set() or self._stop_asked.is_set():
                raise Refusal(RefusalReason.STOPPING, "the measurement was given up")

        return self.call(lambda lifecycle: lifecycle.measure(request, checkpoint))

    def generate(self, request: GenerationRequest, emit: Emit) -> None:
        """Take a request; its events come through `emit`, the last being Finished or Rejected."""
        with self._news:
            if self._lifecycle is not None and not self._closed:
                if len(self._inbox) < INBOX_LIMIT:
                    self._inbox.append(lambda lifecycle: lifecycle.take(request, emit))
                    self._news.notify()
                    return
                emit(Rejected(RejectionCode.QUEUE_FULL, f"{INBOX_LIMIT} requests are waiting already; retry later"))
                return
        code = rejection_in(self._state.phase, self._closed) or RejectionCode.LOADING
        emit(Rejected(code, handed_back_text(code)))

    def cancel(self, request_id: str) -> None:
        """Forget a request; nothing happens when it is done already."""
        self._leave(lambda lifecycle: lifecycle.cancel(request_id))

    def stop(self, grace_s: float) -> None:
        """Let running requests finish within `grace_s`, hand back the others, then end. While loading: end."""
        self._stop_asked.set()
        self._leave(lambda lifecycle: lifecycle.stop(grace_s))
        with self._news:
            self._news.notify()

    @property
    def loading(self) -> bool:
        return self._lifecycle is None and self._state.phase is EnginePhase.LOADING

    def _leave(self, run: Callable[[Lifecycle], None], reply: Future[Any] | None = None) -> None:
        with self._news:
            if self._lifecycle is not None and not self._closed:
                self._inbox.append(run)
                self._news.notify()
                return
        if reply is not None:
            reply.set_exception(self._unavailable())

    def _unavailable(self) -> Refusal:
        if self._closed:
            return Refusal(RefusalReason.STOPPING, "the engine is stopping")
        if self._state.phase is EnginePhase.FAILED:
            return Refusal(RefusalReason.FAILED, f"the engine has failed, restart it: {self._state.error}")
        return Refusal(RefusalReason.LOADING, "the engine is still loading its model; ask again when it is Ready")

    # -- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        loaded: LoadedModel | None = None
        try:
            loaded = self._load_model()
            if loaded is not None:
                self._serve()
            else:
                self._stop_asked.wait(self._failed_linger_s)
        except Exception as error:
            log.exception("the engine's thread died")
            message = f"the engine's thread died: {type(error).__name__}: {error}"
            self._publish_failure(RefusalReason.INTERNAL.value, message)
            if self._lifecycle is not None:
                self._lifecycle.fail(RefusalReason.INTERNAL.value, message)  # tells who still waits
        finally:
            self._close(loaded)

    def _load_model(self) -> LoadedModel | None:
        """Import torch, load, keep the canary. None when that failed; the state then says why."""
        from . import loading

        loaded: LoadedModel | None = None
        try:
            loaded = self._load(self.launch)
            lifecycle = self._begin(loaded)
        except Exception as error:
            reason, message = loading.failure_of(error)
            log.exception("loading failed: %s", reason)
            self._publish_failure(reason, message)
            if loaded is not None:
                loaded.close()
            return None
        with self._news:
            self._lifecycle = lifecycle
        self._publish()
        log.info("ready after %.2f s on %s", lifecycle.load_s or 0.0, self._url)
        return loaded

    def _begin(self, loaded: LoadedModel) -> Lifecycle:
        from .batching import Batcher, BatchLimits
        from .end_tokens import end_tokens
        from .lifecycle import Lifecycle

        runtime = loaded.runtime
        context = min(
            self.launch.model.context_tokens,
            getattr(runtime.config, "max_position_embeddings", None) or self.launch.model.context_tokens,
        )
        batcher = Batcher(
            runtime,
            BatchLimits(context_tokens=context, max_batch=self.launch.model.max_batch),
            end_tokens(runtime),
            kv_capacity_tokens=lambda: lifecycle.kv_capacity_tokens(),
        )
        lifecycle = Lifecycle(self.launch, runtime, loaded.memory, batcher, self._url)
        lifecycle.first_ready(time.time() - self._started_at)
        self.model = ServedModel(
            # a fast tokenizer must not be used by two threads at once: the batcher's stays with the runtime
            tokenizer=copy.deepcopy(runtime.tokenizer),
            vocabulary=int(runtime.config.vocab_size),
            context_tokens=context,
            digest=runtime.model_digest,
        )
        return lifecycle

    def _serve(self) -> None:
        assert self._lifecycle is not None
        lifecycle = self._lifecycle
        if self._stop_asked.is_set():  # while it loaded
            lifecycle.stop(0.0)
        while not lifecycle.stopped:
            for run in self._take(lifecycle):
                run(lifecycle)
                self._publish()
            lifecycle.tick()
            if lifecycle.busy:
                lifecycle.step()
                lifecycle.tick()  # what it was the last step for is answered now
            self._publish()
            if self._lingered(lifecycle):
                return

    def _take(self, lifecycle: Lifecycle) -> list[Callable[[Lifecycle], None]]:
        """What is in the inbox; waits for something when there is nothing else to do."""
        with self._news:
            if not self._inbox and not lifecycle.busy:
                self._news.wait(self._patience_s(lifecycle))
            taken = list(self._inbox)
            self._inbox.clear()
            return taken

    def _patience_s(self, lifecycle: Lifecycle) -> float | None:
        if lifecycle.phase is EnginePhase.FAILED:
            return self._failed_linger_s
        return lifecycle.seconds_to_deadline()

    def _lingered(self, lifecycle: Lifecycle) -> bool:
        """A failed engine has been there to be asked for long enough; its memory is wanted back."""
        if lifecycle.phase is not EnginePhase.FAILED:
            return False
        self._failed_at = self._failed_at or time.monotonic()
        return time.monotonic() - self._failed_at >= self._failed_linger_s

    def _publish(self) -> None:
        assert self._lifecycle is not None
        self._state = self._lifecycle.state()

    def _publish_failure(self, reason: str, message: str) -> None:
        self._state = self._state.model_copy(
            update={"phase": EnginePhase.FAILED, "error": message, "error_reason": reason}
        )

    def _close(self, loaded: LoadedModel | None) -> None:
        """Take no more, answer what is left, let go of the model."""
        with self._news:
            self._closed = True
            left, self._inbox = list(self._inbox), deque()
        if self._lifecycle is not None:
            self._lifecycle.stopping = True
            for run in left:
                run(self._lifecycle)
        if loaded is not None:
            try:
                loaded.close()
            except Exception:
                log.exception("closing the model failed")
        self.ended.set_result(self._state)
