"""Sizes from headers and configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from estiba_agent.models import resolve
from estiba_agent.models.layout import ALIGNMENT, lay_out

from .folders import GPT_NEOX, LLAMA, QWEN3, change_config, rewrite_weights

ALL = pytest.mark.parametrize("uri", [LLAMA, QWEN3, GPT_NEOX])


@ALL
def test_every_weight_has_one_place_and_none_overlap(uri: str, tmp_path: Path) -> None:
    checkpoint = resolve(uri, tmp_path).checkpoint()
    layout = lay_out(checkpoint, "bfloat16")
    names: list[str] = []
    for segment in (layout.fixed, *layout.blocks):
        end = 0
        for tensor in segment.tensors:
            assert tensor.offset >= end
            assert tensor.offset % ALIGNMENT == 0
            end = tensor.offset + tensor.n_bytes
            names.append(tensor.name)
        assert end <= segment.n_bytes
    assert sorted(names) == sorted(checkpoint.tensors)


@ALL
def test_half_the_width_is_half_the_bytes_but_for_alignment(uri: str, tmp_path: Path) -> None:
    model = resolve(uri, tmp_path)
    whole, half = model.facts("float32"), model.facts("bfloat16")
    tensors = len(model.checkpoint().tensors)
    assert 0 <= half.weight_bytes - whole.weight_bytes / 2 <= tensors * ALIGNMENT
    assert half.kv_bytes_per_token * 2 == whole.kv_bytes_per_token


def test_grouped_heads_need_less_kv_cache(tmp_path: Path) -> None:
    grouped, all_heads = resolve(LLAMA, tmp_path), resolve(LLAMA.replace("kv_heads=2", "kv_heads=4"), tmp_path)
    assert grouped.facts("float32").kv_bytes_per_token == 2 * 4 * 2 * 16 * 4
    assert all_heads.facts("float32").kv_bytes_per_token == 2 * 4 * 4 * 16 * 4


def test_tied_weights_are_counted_once(folder: Path) -> None:
    before = _facts(folder)

    def with_a_head(tensors: dict[str, tuple[str, tuple[int, ...], int]]) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]

    rewrite_weights(folder, with_a_head)
    assert _facts(folder) == before
    change_config(folder, tie_word_embeddings=False)
    assert _facts(folder)["weight_bytes"] == before["weight_bytes"] + 512 * 64 * 4


def test_auto_is_what_the_config_says_and_else_what_the_weights_are(folder: Path) -> None:
    model = resolve(f"file://{folder}", folder.parent / "cache")
    assert model.resolved_dtype("auto") == "float32"
    assert model.resolved_dtype("float16") == "float16"
    change_config(folder, dtype="bfloat16")
    assert model.resolved_dtype("auto") == "bfloat16"
    change_config(folder, dtype=None, torch_dtype="float16")
    assert model.resolved_dtype("auto") == "float16"
    change_config(folder, torch_dtype=None)
    assert model.resolved_dtype("auto") == "float32"


def test_the_digest_follows_the_contents(folder: Path) -> None:
    def digest() -> str:
        return resolve(f"file://{folder}", folder.parent / "cache").digest

    before = digest()
    assert digest() == before
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert digest() != before


def _facts(folder: Path) -> dict[str, object]:
    return resolve(f"file://{folder}", folder.parent / "cache").facts("float32").model_dump()
