"""A model's modules without weights: built on the meta device, checked against the files, filled with views."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM

from estiba_agent.models import BadModel
from estiba_agent.models.checkpoint import Checkpoint
from estiba_agent.models.layout import PlacedTensor, Segment, WeightLayout

from . import packed_attention

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ROPE_BY_LENGTH = ("dynamic", "longrope")
"""Position encodings that change with the longest sequence of a batch, so that one sequence would change another's."""


class Skeleton:
    """Modules, where their weights come from, and where each weight goes."""

    def __init__(self, checkpoint: Checkpoint, layout: WeightLayout) -> None:
        """Raises BadModel when the files don't have the weights that the model's class wants."""
        self.checkpoint = checkpoint
        self.layout = layout
        self.dtype = DTYPES[layout.dtype]
        self.config, self.module = _build(checkpoint, self.dtype)
        self.parameters = dict(self.module.named_parameters())
        self._check()
        self.blocks: list[torch.nn.Module] = list(self.module.get_submodule(layout.blocks_at).children())
        self._stamps = self._stamp()

    def materialise(self) -> int:
        """Give every weight an empty place in memory, and compute the constants; return the constants' bytes."""
        owners: dict[int, torch.nn.Parameter] = {}
        for module in self.module.modules():
            for name, parameter in list(module._parameters.items()):
                if parameter is not None:
                    empty = owners.setdefault(
                        id(parameter), torch.nn.Parameter(torch.empty(0, dtype=self.dtype), requires_grad=False)
                    )
                    module._parameters[name] = empty
        self.parameters = dict(self.module.named_parameters())
        constants = 0
        for path, module in list(self.module.named_modules()):
            if module._buffers:
                self._compute_constants(path, module)
                constants += sum(b.nbytes for b in module._buffers.values() if b is not None)
        return constants

    def views(self, segment: Segment, buffer: torch.Tensor) -> list[torch.Tensor]:
        """The weights of a segment as they lie in `buffer`, in the order of `segment.tensors`."""
        return [buffer[t.offset : t.offset + t.n_bytes].view(self.dtype).view(t.shape) for t in segment.tensors]

    def places(self, segment: Segment) -> list[torch.nn.Parameter]:
        """The parameters of a segment, in the order of `segment.tensors`."""
        return [self.parameters[t.name] for t in segment.tensors]

    def read(self, segment: Segment, buffer: torch.Tensor) -> None:
        """Fill `buffer` from the files. Raises BadModel when they changed since the model was first read."""
        if self._stamp() != self._stamps:
            raise BadModel(self.checkpoint.uri, f"the files in {self.checkpoint.path} have changed; start it anew")
        with ExitStack() as files:
            opened: dict[Any, Any] = {}
            for tensor, view in zip(segment.tensors, self.views(segment, buffer), strict=True):
                stored = self.checkpoint.tensors[tensor.name]
                if stored.file not in opened:
                    opened[stored.file] = files.enter_context(safe_open(stored.file, framework="pt", device="cpu"))
                view.copy_(opened[stored.file].get_tensor(stored.name))

    def _stamp(self) -> list[tuple[str, int, int]]:
        files = sorted({tensor.file for tensor in self.checkpoint.tensors.values()})
        try:
            return [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
        except OSError as error:
            raise BadModel(self.checkpoint.uri, f"its files are gone: {error}") from error

    def _check(self) -> None:
        """Every weight that the model wants is there, in the right shape, and nothing else is."""
        uri, path = self.checkpoint.uri, self.checkpoint.path
        placed = {t.name: t for segment in (self.layout.fixed, *self.layout.blocks) for t in segment.tensors}
        for name, parameter in self.parameters.items():
            if name not in placed:
                raise BadModel(
                    uri,
                    f"the weight {name} is missing in {path}; its config.json doesn't belong to it, or "
                    "a file is absent",
                )
            if placed[name].shape != tuple(parameter.shape):
                raise BadModel(
                    uri,
                    f"the weight {name} in {path} has the shape {list(placed[name].shape)}, but "
                    f"config.json makes it {list(parameter.shape)}",
                )
        if surplus := sorted(set(placed) - set(self.parameters)):
            raise BadModel(
                uri,
                f"{path} has weights that {type(self.module).__name__} doesn't know: {surplus[0]}"
                f"{f' and {len(surplus) - 1} more' if len(surplus) > 1 else ''}",
            )

    def _compute_constants(self, path: str, module: torch.nn.Module) -> None:
        """Constants that aren't in the files are made by the module's own constructor."""
        try:
            fresh = type(module)(config=self.config)
        except TypeError as error:
            raise BadModel(
                self.checkpoint.uri,
                f"{type(self.module).__name__} has constants in {path} that this engine can't compute: {error}",
            ) from error
        for name, buffer in fresh._buffers.items():
            module._buffers[name] = buffer


def tensors_of(layout: WeightLayout) -> Iterator[PlacedTensor]:
    for segment in (layout.fixed, *layout.blocks):
        yield from segment.tensors


def _build(checkpoint: Checkpoint, dtype: torch.dtype) -> tuple[Any, torch.nn.Module]:
    try:
        config = AutoConfig.from_pretrained(checkpoint.path, local_files_only=True, trust_remote_code=False)
        with torch.device("meta"):
            module: torch.nn.Module = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
                config, attn_implementation=packed_attention.NAME, dtype=dtype, trust_remote_code=False
            )
    except (ValueError, KeyError, TypeError, ImportError, OSError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise BadModel(checkpoint.uri, f"no model can be built of {checkpoint.path}/config.json: {first}") from error
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in ROPE_BY_LENGTH:
        raise BadModel(checkpoint.uri, f"its position encoding ({rope['rope_type']}) is not supported by this engine")
    return config, module.eval()
