"""A model folder: its configuration and the tensors in its safetensors files."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .bad_model import BadModel
from .dtype import BYTES_PER_VALUE, OF_SAFETENSORS
from .safetensors_file import StoredTensor, read_header

HEAD = "lm_head.weight"
RENAMED = {"embed_out.weight": HEAD}
"""Names of older checkpoints, and what the models call them now."""
NOT_WEIGHTS = re.compile(r"(rotary_emb\.inv_freq|attention\.bias|attention\.masked_bias)$")
"""Buffers that older checkpoints stored; the models compute them."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Weights by the names that the model gives them; tied weights once."""

    uri: str
    path: Path
    config: dict[str, Any]
    tensors: dict[str, StoredTensor]

    @classmethod
    def read(cls, path: Path, uri: str) -> Checkpoint:
        """Read config.json and the headers. Raises BadModel with the file and the fix."""
        config = _read_json(path / "config.json", uri, "it must lie beside the weights")
        if "quantization_config" in config:
            raise BadModel(uri, "its weights are quantised, which this engine can't run; use the unquantised weights")
        tensors = _tensors(_weight_files(path, uri), uri)
        if config.get("tie_word_embeddings", False):
            tensors.pop(HEAD, None)
        if not tensors:
            raise BadModel(uri, f"the safetensors files in {path} hold no weights")
        return cls(uri, path, config, tensors)

    @property
    def architecture(self) -> str:
        """The class that runs it, such as `LlamaForCausalLM`; else the model type."""
        names = self.config.get("architectures") or [self.config.get("model_type") or "unknown"]
        return str(names[0])

    def resolved_dtype(self, dtype: str) -> str:
        """What `auto` means for these weights: the config's word, else the format most of the values are in."""
        if dtype != "auto":
            if dtype not in BYTES_PER_VALUE:
                raise BadModel(self.uri, f"dtype {dtype!r} is not known; write auto, {', '.join(BYTES_PER_VALUE)}")
            return dtype
        said = str(self.config.get("dtype") or self.config.get("torch_dtype") or "").removeprefix("torch.")
        if said in BYTES_PER_VALUE:
            return said
        values: Counter[str] = Counter()
        for tensor in self.tensors.values():
            values[OF_SAFETENSORS[tensor.dtype]] += tensor.values
        stored = values.most_common(1)[0][0]
        return stored if stored in BYTES_PER_VALUE else "float32"

    def number(self, *names: str) -> int | None:
        """The first of these configuration fields that is a positive number."""
        for name in names:
            value = self.config.get(name)
            if isinstance(value, int) and value > 0:
                return value
        return None


def _tensors(files: list[Path], uri: str) -> dict[str, StoredTensor]:
    tensors: dict[str, StoredTensor] = {}
    for file in files:
        for tensor in read_header(file, uri):
            name = RENAMED.get(tensor.name, tensor.name)
            if NOT_WEIGHTS.search(name):
                continue
            if tensor.dtype not in OF_SAFETENSORS:
                raise BadModel(
                    uri,
                    f"{tensor.name} in {file} is of type {tensor.dtype}; this engine runs floating-point weights "
                    "(F32, BF16, F16)",
                )
            if name in tensors:
                other = tensors[name].file.name
                raise BadModel(uri, f"{name} is in {other} and in {file}; remove the file that doesn't belong here")
            tensors[name] = tensor
    return tensors


def _weight_files(path: Path, uri: str) -> list[Path]:
    """The files that the index names, or every safetensors file where there is no index."""
    index = path / "model.safetensors.index.json"
    if index.is_file():
        names = _read_json(index, uri, "").get("weight_map")
        if not isinstance(names, dict) or not names:
            raise BadModel(uri, f"{index} has no weight_map; fetch it again")
        files = [path / str(name) for name in sorted(set(names.values()))]
        if absent := [file.name for file in files if not file.is_file()]:
            raise BadModel(uri, f"{', '.join(absent)} named in {index.name} is not in {path}; fetch it")
        return files
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise BadModel(uri, f"no *.safetensors file in {path}; save the model with save_pretrained()")
    return files


def _read_json(file: Path, uri: str, why: str) -> dict[str, Any]:
    try:
        value = json.loads(file.read_bytes())
    except FileNotFoundError as error:
        raise BadModel(uri, f"{file} is missing; {why}") from error
    except (OSError, ValueError) as error:
        raise BadModel(uri, f"{file} can't be read: {error}") from error
    if not isinstance(value, dict):
        raise BadModel(uri, f"{file} is not a JSON object")
    return value
