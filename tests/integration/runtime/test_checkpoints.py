"""The same weights in other clothes: sharded, under older names, with buffers that aren't weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from estiba_agent.models import resolve

from .conftest import Load
from .machine import GPT_NEOX, LLAMA, greedy

Weights = dict[str, torch.Tensor]


def in_shards(folder: Path, weights: Weights) -> None:
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, inside in shards.items():
        save_file({name: weights[name] for name in inside}, folder / file)
    index = {"weight_map": {name: file for file, inside in shards.items() for name in inside}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "consolidated.safetensors").write_bytes(b"not in the index, not read")


def under_older_names(folder: Path, weights: Weights) -> None:
    weights["embed_out.weight"] = weights.pop("lm_head.weight")
    for layer in range(6):
        weights[f"gpt_neox.layers.{layer}.attention.masked_bias"] = torch.tensor(-1e9)
        weights[f"gpt_neox.layers.{layer}.attention.bias"] = torch.ones(8, 8, dtype=torch.bool)
        weights[f"gpt_neox.layers.{layer}.attention.rotary_emb.inv_freq"] = torch.ones(8)
    save_file(weights, folder / "model.safetensors")


def with_the_tied_head(folder: Path, weights: Weights) -> None:
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    save_file(weights, folder / "model.safetensors")


def in_half_width(folder: Path, weights: Weights) -> None:
    save_file({name: weight.bfloat16() for name, weight in weights.items()}, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("uri", "dress"), [(LLAMA, in_shards), (GPT_NEOX, under_older_names), (LLAMA, with_the_tied_head)]
)
def test_the_answers_are_the_same(
    uri: str, dress: Callable[[Path, Weights], None], load: Load, cache: Path, tmp_path: Path
) -> None:
    plain = load(uri)
    dressed = load(f"file://{_dressed(uri, dress, cache, tmp_path)}")
    assert dressed.footprint.weight_bytes == plain.footprint.weight_bytes
    assert torch.equal(greedy(dressed, 3), greedy(plain, 3))


def test_weights_of_another_width_are_served_in_the_one_asked_for(load: Load, cache: Path, tmp_path: Path) -> None:
    stored = _dressed(LLAMA, in_half_width, cache, tmp_path)
    served = load(f"file://{stored}", dtype="float32")
    assert served.footprint.weight_bytes == load(LLAMA).footprint.weight_bytes
    assert greedy(served, 2).dtype is torch.float32
    torch.testing.assert_close(greedy(served, 1), greedy(load(LLAMA), 1), rtol=0.1, atol=0.1)


def _dressed(uri: str, dress: Callable[[Path, Weights], None], cache: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "dressed"
    shutil.copytree(resolve(uri, cache).path, folder)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").touch()
    dress(folder, weights)
    return folder
