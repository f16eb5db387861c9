"""A double of the model runtime that says what the test wrote for it, token by token.

Tokens 0 to 255 are bytes, further ones are the pieces that a test adds, and END ends an answer. Memory is real: weights
and KV cache are taken from a device account.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from estiba_agent.devices import DeviceAccount
from estiba_agent.engines.torch.canary import PROMPT
from estiba_agent.engines.torch.kv import KvCacheFull
from estiba_scheduler.domain import Footprint

END = 256
FIRST_PIECE = 257
VOCABULARY = 300
LAYERS = (1000, 1000)
FIXED = 500
WEIGHTS = FIXED + sum(LAYERS)
KV_PER_TOKEN = 10
STREAM_BUFFER = 100


class ScriptedTokenizer:
    """Bytes as tokens, and pieces of several bytes after END."""

    eos_token_id = END
    bos_token_id = None
    chat_template: str | None = "scripted"
    added_tokens_decoder: dict[int, str] = {}  # noqa: RUF012

    def __init__(self, pieces: tuple[bytes, ...] = ()) -> None:
        self.pieces = pieces

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": list(text.encode())}

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool = True) -> str:
        return b"".join(self._bytes(token) for token in token_ids).decode("utf-8", "replace")

    def apply_chat_template(self, turns: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool) -> str:
        if turns[0]["role"] == "tool":
            raise ValueError("a conversation can't begin with a tool")
        return "\n".join(f"{turn['role']}: {turn['content']}" for turn in turns)

    def _bytes(self, token: int) -> bytes:
        if token < END:
            return bytes([token])
        return b"" if token == END else self.pieces[token - FIRST_PIECE]


@dataclass
class ScriptedSequence:
    tokens_hint: int
    fed: list[int] = field(default_factory=list)


@dataclass
class ScriptedTiming:
    step_s: float = 0.01
    wait_s: float = 0.002
    streamed_bytes: int = 0


class ScriptedRuntime:
    """Says `says[prompt]` (text, or token ids) and then END; after any other prompt it says "x" without end."""

    def __init__(
        self,
        says: dict[str, str | list[int]] | None = None,
        *,
        account: DeviceAccount | None = None,
        kv_bytes: int = 10_000,
        pieces: tuple[bytes, ...] = (),
    ) -> None:
        self.tokenizer: Any = ScriptedTokenizer(pieces)
        self.config = SimpleNamespace(vocab_size=VOCABULARY, eos_token_id=None, max_position_embeddings=None)
        self.generation_config: Any = None
        self.model_digest = "scripted"
        self.last_step = ScriptedTiming()
        self.steps: list[list[tuple[ScriptedSequence, list[int]]]] = []
        self.sequences: list[ScriptedSequence] = []
        self.calls: list[str] = []
        self.asleep = 0
        self.garbled = False
        self.before_step: Callable[[], object] = lambda: None
        self.fail_next: Exception | None = None
        self.failing_wake: Exception | None = None
        self.resident_bytes = 0
        self.footprint = Footprint(
            weight_bytes=WEIGHTS,
            fixed_bytes=FIXED,
            layer_bytes=LAYERS,
            kv_bytes_per_token=KV_PER_TOKEN,
            stream_buffer_bytes=STREAM_BUFFER,
        )
        self._says = {
            tuple(prompt.encode()): list(answer.encode()) if isinstance(answer, str) else answer
            for prompt, answer in {PROMPT: "Paris. It is big", **(says or {})}.items()
        }
        self._account = account
        self._kv_bytes = 0
        self._take(WEIGHTS, kv_bytes)

    # -- steps --

    @property
    def kv_used_bytes(self) -> int:
        return KV_PER_TOKEN * sum(sequence.tokens_hint for sequence in self.sequences)

    def new_sequence(self, tokens_hint: int) -> ScriptedSequence:
        if self.kv_used_bytes + KV_PER_TOKEN * tokens_hint > self._kv_bytes:
            raise KvCacheFull(f"{tokens_hint} tokens don't fit")
        sequence = ScriptedSequence(tokens_hint)
        self.sequences.append(sequence)
        return sequence

    def free(self, seq: ScriptedSequence) -> None:
        self.sequences.remove(seq)

    def step(self, items: Items[tuple[ScriptedSequence, list[int]]]) -> torch.Tensor:
        self.before_step()
        if self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            raise error
        assert not self.asleep, "a step while asleep"
        self.steps.append([(sequence, list(tokens)) for sequence, tokens in items])
        logits = torch.zeros(len(items), VOCABULARY)
        for row, (sequence, tokens) in zip(logits, items, strict=True):
            sequence.fed += tokens
            assert len(sequence.fed) <= sequence.tokens_hint, "more tokens than were reserved"
            row[self._next(sequence.fed)] = 100.0
        return logits

    def _next(self, fed: list[int]) -> int:
        if self.garbled:
            return ord("#")
        for prompt, answer in self._says.items():
            if tuple(fed[: len(prompt)]) == prompt:
                said = len(fed) - len(prompt)
                return answer[said] if said < len(answer) else END
        return ord("x")

    # -- residency --

    @property
    def device_bytes(self) -> int:
        return self._account.held if self._account else self.resident_bytes + self._kv_bytes

    @property
    def host_bytes(self) -> int:
        return 0 if self.asleep == 2 else WEIGHTS - self.resident_bytes

    @property
    def resident_fraction(self) -> float:
        return self.resident_bytes / WEIGHTS

    def set_resident_bytes(self, n: int) -> int:
        self.calls.append(f"resident {n}")
        n = min(max(n, FIXED), WEIGHTS)
        self._hold(n - self.resident_bytes)
        self.resident_bytes = n
        return n

    def set_kv_bytes(self, n: int) -> None:
        self.calls.append(f"kv {n}")
        self._hold(n - self._kv_bytes)
        self._kv_bytes = n

    def sleep(self, level: int, keep_kv: bool) -> None:
        self.calls.append(f"sleep {level}")
        self._hold(-self.resident_bytes - self._kv_bytes)
        self.resident_bytes = self._kv_bytes = 0
        self.asleep = level

    def wake(self, resident_bytes: int, kv_bytes: int) -> None:
        self.calls.append("wake")
        if self.failing_wake is not None:
            raise self.failing_wake
        self._take(resident_bytes, kv_bytes)
        self.asleep = 0

    def close(self) -> None:
        self.calls.append("close")
        self._hold(-self.resident_bytes - self._kv_bytes)
        self.resident_bytes = self._kv_bytes = 0

    def _take(self, resident_bytes: int, kv_bytes: int) -> None:
        resident = min(max(resident_bytes, FIXED), WEIGHTS)
        self._hold(resident)
        self.resident_bytes = resident
        self._hold(kv_bytes)
        self._kv_bytes = kv_bytes

    def _hold(self, change: int) -> None:
        if self._account is None:
            return
        if change > 0:
            self._account.grow(change)
        elif change < 0:
            self._account.shrink(-change)
