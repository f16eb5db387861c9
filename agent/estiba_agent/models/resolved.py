"""A model that was found: where it is and what its files tell about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from estiba_scheduler.prediction import ModelFacts, kv_bytes_per_token

from .bad_model import BadModel
from .checkpoint import Checkpoint
from .dtype import BYTES_PER_VALUE
from .layout import lay_out


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A folder with config.json, safetensors weights and a tokenizer. `digest` is of the contents."""

    uri: str
    path: Path
    digest: str
    architecture: str
    name: str

    def checkpoint(self) -> Checkpoint:
        """Configuration and tensor headers, read now. Raises BadModel."""
        return Checkpoint.read(self.path, self.uri)

    def resolved_dtype(self, dtype: str) -> str:
        """What is served when `dtype` is asked for; `auto` becomes the weights' own."""
        return self.checkpoint().resolved_dtype(dtype)

    def facts(self, dtype: str) -> ModelFacts:
        """Sizes in bytes, from headers and configuration alone; the engine's own figures agree. Raises BadModel."""
        checkpoint = self.checkpoint()
        layout = lay_out(checkpoint, dtype)
        return ModelFacts(
            weight_bytes=layout.weight_bytes,
            fixed_bytes=layout.fixed.n_bytes,
            layer_bytes=layout.block_bytes,
            kv_bytes_per_token=kv_bytes_of(checkpoint, layout.dtype),
        )


def kv_bytes_of(checkpoint: Checkpoint, dtype: str) -> int:
    """Bytes of keys and values of one token in all layers. Raises BadModel when config.json lacks a figure."""
    return kv_bytes_per_token(*kv_geometry(checkpoint), BYTES_PER_VALUE[dtype])


def kv_geometry(checkpoint: Checkpoint) -> tuple[int, int, int]:
    """Layers, KV heads and the size of a head. Raises BadModel when config.json lacks a figure."""
    layers = checkpoint.number("num_hidden_layers", "n_layer")
    heads = checkpoint.number("num_attention_heads", "n_head")
    hidden = checkpoint.number("hidden_size", "n_embd")
    if layers is None or heads is None or hidden is None:
        raise BadModel(
            checkpoint.uri,
            "its config.json lacks num_hidden_layers, num_attention_heads or hidden_size; only text models can be run",
        )
    return layers, checkpoint.number("num_key_value_heads") or heads, checkpoint.number("head_dim") or hidden // heads
