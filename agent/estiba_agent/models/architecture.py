"""The three architectures that random models come in: their configuration and the names and shapes of their weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Weight = tuple[str, tuple[int, ...], float]
"""Name, shape and start: SPREAD for random values of that spread, else the constant that fills it."""

SPREAD = 0.02
"""Standard deviation of random weights, as models are initialised for training."""
CONTEXT_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Sizes of a decoder. `head_dim` is hidden / heads."""

    hidden: int
    layers: int
    intermediate: int
    heads: int
    kv_heads: int
    vocab: int

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads


@dataclass(frozen=True, slots=True)
class Architecture:
    """A class of models; `weights` yields every weight with its starting value."""

    model_type: str
    class_name: str
    config: Callable[[Dimensions], dict[str, Any]]
    weights: Callable[[Dimensions], Iterator[Weight]]
    grouped_heads: bool = True


def _common(size: Dimensions) -> dict[str, Any]:
    return {
        "hidden_size": size.hidden,
        "num_hidden_layers": size.layers,
        "intermediate_size": size.intermediate,
        "num_attention_heads": size.heads,
        "vocab_size": size.vocab,
        "max_position_embeddings": CONTEXT_TOKENS,
        "initializer_range": SPREAD,
        "use_cache": True,
    }


def _llama_config(size: Dimensions) -> dict[str, Any]:
    return _common(size) | {
        "num_key_value_heads": size.kv_heads,
        "head_dim": size.head_dim,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
    }


def _neox_config(size: Dimensions) -> dict[str, Any]:
    return _common(size) | {"tie_word_embeddings": False, "hidden_act": "gelu", "layer_norm_eps": 1e-5}


def _llama_weights(size: Dimensions, head_norms: bool = False) -> Iterator[Weight]:
    q, kv = size.heads * size.head_dim, size.kv_heads * size.head_dim
    yield "model.embed_tokens.weight", (size.vocab, size.hidden), SPREAD
    for i in range(size.layers):
        at = f"model.layers.{i}"
        yield f"{at}.self_attn.q_proj.weight", (q, size.hidden), SPREAD
        yield f"{at}.self_attn.k_proj.weight", (kv, size.hidden), SPREAD
        yield f"{at}.self_attn.v_proj.weight", (kv, size.hidden), SPREAD
        yield f"{at}.self_attn.o_proj.weight", (size.hidden, q), SPREAD
        if head_norms:
            yield f"{at}.self_attn.q_norm.weight", (size.head_dim,), 1.0
            yield f"{at}.self_attn.k_norm.weight", (size.head_dim,), 1.0
        yield f"{at}.mlp.gate_proj.weight", (size.intermediate, size.hidden), SPREAD
        yield f"{at}.mlp.up_proj.weight", (size.intermediate, size.hidden), SPREAD
        yield f"{at}.mlp.down_proj.weight", (size.hidden, size.intermediate), SPREAD
        yield f"{at}.input_layernorm.weight", (size.hidden,), 1.0
        yield f"{at}.post_attention_layernorm.weight", (size.hidden,), 1.0
    yield "model.norm.weight", (size.hidden,), 1.0


def _qwen3_weights(size: Dimensions) -> Iterator[Weight]:
    return _llama_weights(size, head_norms=True)


def _neox_weights(size: Dimensions) -> Iterator[Weight]:
    def layer(name: str, rows: int, columns: int) -> Iterator[Weight]:
        yield f"{name}.weight", (rows, columns), SPREAD
        yield f"{name}.bias", (rows,), 0.0

    def norm(name: str) -> Iterator[Weight]:
        yield f"{name}.weight", (size.hidden,), 1.0
        yield f"{name}.bias", (size.hidden,), 0.0

    yield "gpt_neox.embed_in.weight", (size.vocab, size.hidden), SPREAD
    for i in range(size.layers):
        at = f"gpt_neox.layers.{i}"
        yield from norm(f"{at}.input_layernorm")
        yield from norm(f"{at}.post_attention_layernorm")
        yield from layer(f"{at}.attention.query_key_value", 3 * size.hidden, size.hidden)
        yield from layer(f"{at}.attention.dense", size.hidden, size.hidden)
        yield from layer(f"{at}.mlp.dense_h_to_4h", size.intermediate, size.hidden)
        yield from layer(f"{at}.mlp.dense_4h_to_h", size.hidden, size.intermediate)
    yield from norm("gpt_neox.final_layer_norm")
    yield "lm_head.weight", (size.vocab, size.hidden), SPREAD


ARCHITECTURES = {
    "llama": Architecture("llama", "LlamaForCausalLM", _llama_config, _llama_weights),
    "qwen3": Architecture("qwen3", "Qwen3ForCausalLM", _llama_config, _qwen3_weights),
    "gpt_neox": Architecture("gpt_neox", "GPTNeoXForCausalLM", _neox_config, _neox_weights, grouped_heads=False),
}
