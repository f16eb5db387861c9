"""One request while the engine works on it: its sequence, its sampler, the text it has shown."""

from __future__ import annotations

from typing import Any

from .detokenizer import Detokenizer
from .request import Emit, Finished, FinishReason, GenerationRequest, Rejected, RejectionCode, TextDelta
from .sampling import Sampler
from .stop import StopScanner


class Generation:
    """Mutable, and only ever touched by the engine's thread.

    `pending` are the tokens that the next steps must feed: the rest of the prompt, later the token picked last.
    """

    def __init__(self, request: GenerationRequest, emit: Emit, arrived_at: float) -> None:
        self.request = request
        self.arrived_at = arrived_at
        self.sequence: Any = None
        self.limit = 0  # tokens to generate at most, set at admission
        self.pending: list[int] = list(request.prompt)
        self.completion_tokens = 0
        self.finished = False
        self._emit = emit
        self._sent = False
        self._stop = StopScanner(request.stop)
        self._sampler: Sampler | None = None
        self._detokenizer: Detokenizer | None = None

    def admit(self, sequence: Any, limit: int, tokenizer: Any) -> None:
        """The request has its room: `sequence` holds its KV for the prompt and `limit` tokens."""
        self.sequence, self.limit = sequence, limit
        self._sampler = Sampler(self.request.sampling)
        self._detokenizer = Detokenizer(tokenizer)

    @property
    def decoding(self) -> bool:
        """The prompt is in; the next step feeds one token."""
        return self.completion_tokens > 0

    @property
    def seen(self) -> bool:
        """A client has seen a part of the answer, which then can't be handed back any more."""
        return self._sent and self.request.streaming

    def accept(self, logits: Any, end_tokens: frozenset[int]) -> None:
        """Pick the next token from the row of logits, show what text it completes, and finish if it is the last."""
        assert self._sampler is not None
        assert self._detokenizer is not None
        token = self._sampler.pick(logits)
        self.completion_tokens += 1
        self.pending = [token]
        if token in end_tokens and not self.request.ignore_eos:
            self._finish(FinishReason.STOP)
            return
        self._show(self._stop.feed(self._detokenizer.feed(token)))
        if self._stop.stopped:
            self._finish(FinishReason.STOP)
        elif self.completion_tokens >= self.limit:
            self._finish(FinishReason.LENGTH)

    def reject(self, code: RejectionCode, message: str) -> None:
        """End without (more of) an answer."""
        if not self.finished:
            self.finished = True
            self._emit(Rejected(code, message))

    def _finish(self, reason: FinishReason) -> None:
        assert self._detokenizer is not None
        if not self._stop.stopped:
            self._show(self._stop.feed(self._detokenizer.flush()))
            reason = FinishReason.STOP if self._stop.stopped else reason
        if not self._stop.stopped:
            self._show(self._stop.flush())
        self.finished = True
        self._emit(Finished(reason, len(self.request.prompt), self.completion_tokens))

    def _show(self, text: str) -> None:
        if text:
            self._sent = True
            self._emit(TextDelta(text))
