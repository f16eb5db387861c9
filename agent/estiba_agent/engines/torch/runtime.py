"""A whole model on a device: sequences, steps, residency, sleep and wake. What the engine's server side drives."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import psutil
import torch
from transformers import AutoTokenizer, GenerationConfig

from estiba_agent.devices import DeviceAccount, HostLinkClock
from estiba_agent.models import BadModel, ResolvedModel, resolve
from estiba_agent.models.layout import lay_out
from estiba_agent.models.resolved import kv_geometry
from estiba_agent.offload import HostLinkTransfer, held_bytes
from estiba_scheduler.domain import Footprint, Provenance
from estiba_scheduler.quantities import format_bytes, format_seconds

from ..wire import EngineLaunch
from .activations import ActivationBytes, count_activations, forward
from .kv import KvCache, KvShape, Sequence
from .packed_attention import PackedBatch
from .skeleton import Skeleton
from .weights import ModelWeights

log = logging.getLogger(__name__)

CHUNK_TOKENS = 128
"""Prompt tokens that a step is expected to take at most; room for its activations is planned with them."""


class Asleep(IntEnum):
    """Where the weights are."""

    AWAKE = 0
    IN_HOST_MEMORY = 1
    DROPPED = 2
    CLOSED = 3


class RuntimeAsleep(RuntimeError):
    """A step, a sequence or a residency was asked of a model that sleeps or is closed."""


@dataclass(frozen=True, slots=True)
class StepTiming:
    """Of one step: its seconds, those of them in which compute waited for weights, bytes streamed for it."""

    step_s: float = 0.0
    wait_s: float = 0.0
    streamed_bytes: int = 0
    batch: int = 0


class ModelRuntime:
    """One model in one device account. Not thread-safe: one thread calls everything."""

    @classmethod
    def load(
        cls,
        launch: EngineLaunch,
        account: DeviceAccount,
        link: HostLinkClock,
        progress: Callable[[str], None] | None = None,
    ) -> ModelRuntime:
        """Resolve and load the model. Raises BadModel, or DeviceOutOfMemory; then nothing stays in the account."""
        if launch.device_kind != "cpu":
            raise BadModel(launch.model.uri, f"the torch engine runs on cpu devices, not on {launch.device_kind}")
        torch.set_num_threads(launch.compute_threads)
        model = resolve(launch.model.uri, launch.model_cache, progress)
        if launch.model.digest not in (None, model.digest):
            raise BadModel(
                launch.model.uri,
                f"its files have changed: the digest is {model.digest}, not {launch.model.digest} as it was when the "
                "model was deployed; apply the deployment again",
            )
        return cls(launch, model, account, link, progress)

    def __init__(
        self,
        launch: EngineLaunch,
        model: ResolvedModel,
        account: DeviceAccount,
        link: HostLinkClock,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        began = time.monotonic()

        def say(text: str) -> None:
            log.info("%s: %s", model.name, text)
            if progress is not None:
                progress(text)

        self._account = account
        self._model = model
        self._say = say
        self._asleep = Asleep.AWAKE
        self._last_step = StepTiming()
        self._measured: dict[str, int] = {}
        checkpoint = model.checkpoint()
        skeleton = Skeleton(checkpoint, lay_out(checkpoint, launch.model.dtype))
        self._skeleton = skeleton
        self._tokenizer = _tokenizer(model)
        self._generation_config = _generation_config(model)
        layers, kv_heads, head_dim = kv_geometry(checkpoint)
        shape = KvShape(layers, kv_heads, head_dim, skeleton.dtype)
        self._most_tokens = CHUNK_TOKENS + launch.model.max_batch
        self._most_sequences = launch.model.max_batch
        self._activations: ActivationBytes = count_activations(
            skeleton, shape, self._most_tokens, launch.model.context_tokens
        )
        self._largest_step_bytes = self._activations.of(self._most_tokens, self._most_sequences)
        transfer = HostLinkTransfer(link, launch.chunk_bytes)
        held_before = account.held
        self._constant_bytes = skeleton.materialise()
        account.grow(self._constant_bytes)
        self._kv = KvCache(shape, account, transfer, launch.kv_bytes)
        self._weights = ModelWeights(skeleton, account, transfer)
        account.reset_peak()
        try:
            wanted = launch.resident_bytes
            self._weights.load(self._weights.weight_bytes if wanted is None else wanted, say)
        except BaseException:
            account.shrink(self._constant_bytes)
            raise
        ring = self._weights.ring_bytes if self._weights.offloaded else 0
        offloaded = self._weights.weight_bytes - self._weights.resident_bytes
        self._measured["load_peak_bytes"] = account.peak - held_before - ring + offloaded
        self._measured["load_peak_host_bytes"] = self._weights.host_bytes
        resident_set = psutil.Process().memory_info().rss
        self._measured["process_host_bytes"] = max(0, resident_set - account.held - self._weights.host_bytes)
        say(
            f"loaded in {format_seconds(time.monotonic() - began)}: {format_bytes(self.resident_bytes)} on the device, "
            f"{format_bytes(self.host_bytes)} in host memory"
        )

    # -- what it is -------------------------------------------------------------------------------------------------

    @property
    def tokenizer(self) -> Any:
        return self._tokenizer

    @property
    def config(self) -> Any:
        return self._skeleton.config

    @property
    def generation_config(self) -> Any:
        """The model's own, or None."""
        return self._generation_config

    @property
    def model_digest(self) -> str:
        return self._model.digest

    @property
    def dtype(self) -> str:
        """The format that weights and KV cache are served in."""
        return self._skeleton.layout.dtype

    # -- figures ----------------------------------------------------------------------------------------------------

    @property
    def last_step(self) -> StepTiming:
        return self._last_step

    @property
    def kv_used_bytes(self) -> int:
        return self._kv.used_bytes

    @property
    def device_bytes(self) -> int:
        """Everything that this model holds on the device."""
        return self._account.held

    @property
    def host_bytes(self) -> int:
        """Offloaded and sleeping weights and saved KV cache in host memory."""
        return self._weights.host_bytes + self._kv.saved_bytes

    @property
    def resident_bytes(self) -> int:
        return self._weights.resident_bytes

    @property
    def resident_fraction(self) -> float:
        return self._weights.resident_bytes / self._weights.weight_bytes

    @property
    def footprint(self) -> Footprint:
        """Sizes of what is held, counted from the buffers; what a sleep leaves behind is counted when it slept."""
        layout = self._skeleton.layout
        whole, blocks = self._weights.weight_bytes, layout.block_bytes
        in_pages = sum(held_bytes(n) for n in blocks)
        asleep1_host = in_pages + held_bytes(layout.fixed.n_bytes)
        return Footprint(
            weight_bytes=whole,
            fixed_bytes=layout.fixed.n_bytes,
            layer_bytes=blocks,
            kv_bytes_per_token=self._kv.shape.bytes_per_token,
            activation_bytes=self._largest_step_bytes,
            overhead_bytes=self._constant_bytes,
            stream_buffer_bytes=self._weights.ring_bytes,
            load_peak_bytes=self._measured["load_peak_bytes"],
            load_peak_host_bytes=self._measured["load_peak_host_bytes"],
            host_factor=in_pages / sum(blocks),
            process_host_bytes=self._measured["process_host_bytes"],
            sleep1_device_bytes=self._measured.get("sleep1_device_bytes", self._constant_bytes),
            sleep1_host_bytes=self._measured.get("sleep1_host_bytes", asleep1_host),
            sleep2_device_bytes=self._measured.get("sleep2_device_bytes", self._constant_bytes),
            sleep2_host_bytes=self._measured.get("sleep2_host_bytes", 0),
            provenance=Provenance.MEASURED,
        )

    # -- sequences and steps ----------------------------------------------------------------------------------------

    def new_sequence(self, tokens_hint: int) -> Sequence:
        """A sequence with KV cache reserved for `tokens_hint` tokens, all it can ever hold. Raises KvCacheFull."""
        self._must_be_awake("a sequence")
        return self._kv.new_sequence(tokens_hint)

    def free(self, seq: Sequence) -> None:
        self._kv.free(seq)

    def step(self, items: Items[tuple[Sequence, list[int]]]) -> torch.Tensor:
        """Feed each sequence its tokens; return the logits after each one's last token, `[len(items), vocab]`.

        After an error nothing has been fed, and a next step may be taken. Raises StreamFailed when weights don't
        arrive, DeviceOutOfMemory when the activations don't fit into the account.
        """
        self._must_be_awake("a step")
        self._check(items)
        began = time.perf_counter()
        batch = PackedBatch([(sequence, len(tokens)) for sequence, tokens in items])
        room = self._activations.of(batch.tokens, len(items))
        self._account.grow(room)
        try:
            self._weights.begin_step()
            logits = forward(self._skeleton.module, [token for _, tokens in items for token in tokens], batch)
        finally:
            self._account.shrink(room)
        batch.commit()
        self._largest_step_bytes = max(self._largest_step_bytes, room)
        streamed = self._weights.streamed
        self._last_step = StepTiming(time.perf_counter() - began, streamed.wait_s, streamed.n_bytes, len(items))
        return logits

    def _check(self, items: Items[tuple[Sequence, list[int]]]) -> None:
        if not items:
            raise ValueError("a step needs at least one sequence")
        if len({id(sequence) for sequence, _ in items}) != len(items):
            raise ValueError("a sequence can be in a step once only")
        for sequence, tokens in items:
            if sequence not in self._kv or not sequence.on_device:
                raise ValueError("a sequence in this step was freed, or dropped by a sleep")
            if not tokens:
                raise ValueError("each sequence in a step needs at least one token")
            if sequence.length + len(tokens) > sequence.capacity:
                raise ValueError(
                    f"a sequence has {sequence.length} of {sequence.capacity} tokens and can't take {len(tokens)} more"
                )

    # -- residency, sleep and wake ----------------------------------------------------------------------------------

    def set_resident_bytes(self, n: int) -> int:
        """Keep at most `n` bytes of weights on the device (never less than the fixed ones); return what is there.

        Raises DeviceOutOfMemory with nothing changed.
        """
        self._must_be_awake("a change of residency")
        return self._weights.set_resident_bytes(n)

    def set_kv_bytes(self, n: int) -> None:
        """Change the KV budget. Raises KvCacheFull when sequences hold more."""
        self._kv.set_budget(n)

    def sleep(self, level: int, keep_kv: bool) -> None:
        """Level 1: weights to host memory, and the sequences with them where `keep_kv`. Level 2: everything dropped.

        A model that sleeps can go deeper; what it already gave up it doesn't get back.
        """
        if level not in (1, 2):
            raise ValueError(f"there are sleep levels 1 and 2, not {level}")
        if self._asleep is Asleep.CLOSED:
            raise RuntimeAsleep("the model is closed")
        if keep_kv and level == 1:
            self._kv.save()
        else:
            self._kv.drop()
        if level == 2:
            self._weights.drop()
        elif self._asleep is not Asleep.DROPPED:
            self._weights.to_host()
        self._asleep = max(self._asleep, Asleep(level))
        self._measured[f"sleep{self._asleep}_device_bytes"] = self._account.held
        self._measured[f"sleep{self._asleep}_host_bytes"] = self._weights.host_bytes
        self._say(
            f"asleep at level {self._asleep}: {format_bytes(self._account.held)} stay on the device (constants), "
            f"{format_bytes(self.host_bytes)} in host memory"
        )

    def wake(self, resident_bytes: int, kv_bytes: int) -> None:
        """Back on the device with this residency and KV budget; sequences that were kept go on.

        Raises DeviceOutOfMemory or KvCacheFull with the model asleep as it was, BadModel when its files changed.
        """
        if self._asleep in (Asleep.AWAKE, Asleep.CLOSED):
            raise RuntimeAsleep(f"only a sleeping model can be woken; this one is {self._asleep.name.lower()}")
        began = time.monotonic()
        kept = self._kv.restore_bytes(kv_bytes)
        self._account.grow(kept)
        try:
            if self._asleep is Asleep.IN_HOST_MEMORY:
                self._weights.set_resident_bytes(resident_bytes)
            else:
                self._weights.load(resident_bytes, self._say)
        except BaseException:
            self._account.shrink(kept)
            raise
        self._kv.restore()
        self._kv.set_budget(kv_bytes)
        self._asleep = Asleep.AWAKE
        self._say(f"awake in {format_seconds(time.monotonic() - began)}")

    def close(self) -> None:
        """Give everything back; closing twice does nothing."""
        if self._asleep is Asleep.CLOSED:
            return
        self._asleep = Asleep.CLOSED
        self._kv.drop()
        self._weights.drop()
        self._account.shrink(self._constant_bytes)

    def _must_be_awake(self, what: str) -> None:
        if self._asleep is not Asleep.AWAKE:
            raise RuntimeAsleep(f"{what} was asked of a model that is {self._asleep.name.lower()}; wake it first")


def _tokenizer(model: ResolvedModel) -> Any:
    try:
        return AutoTokenizer.from_pretrained(model.path, local_files_only=True, trust_remote_code=False)
    except (ValueError, OSError, KeyError, ImportError, TypeError) as error:
        raise BadModel(model.uri, f"no tokenizer can be read from {model.path}: {error}") from error


def _generation_config(model: ResolvedModel) -> Any:
    if not (model.path / "generation_config.json").is_file():
        return None
    try:
        return GenerationConfig.from_pretrained(model.path, local_files_only=True)
    except (ValueError, OSError, TypeError) as error:
        raise BadModel(model.uri, f"generation_config.json can't be read: {error}") from error
