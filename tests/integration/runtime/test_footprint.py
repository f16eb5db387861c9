"""What a runtime says it takes is what it takes, and what the files told before."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from estiba_agent.engines.torch.activations import AllocationMeter
from estiba_agent.models import BadModel, resolve
from estiba_agent.models.safetensors_file import read_header, write_file
from estiba_scheduler.domain import Provenance

from .conftest import Load
from .machine import GPT_NEOX, LLAMA, QWEN3

ALL = pytest.mark.parametrize("uri", [LLAMA, QWEN3, GPT_NEOX])


@ALL
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_facts_agree_with_the_loaded_model(uri: str, dtype: str, load: Load, cache: Path) -> None:
    facts, footprint = resolve(uri, cache).facts(dtype), load(uri, dtype=dtype).footprint
    assert facts.weight_bytes == footprint.weight_bytes
    assert facts.fixed_bytes == footprint.fixed_bytes
    assert facts.layer_bytes == footprint.layer_bytes
    assert facts.kv_bytes_per_token == footprint.kv_bytes_per_token
    assert footprint.fixed_bytes + footprint.offloadable_bytes == footprint.weight_bytes
    assert footprint.provenance is Provenance.MEASURED


@ALL
@pytest.mark.parametrize("resident", [1.0, 0.4])
def test_the_load_peak_is_the_weights(uri: str, resident: float, load: Load, cache: Path) -> None:
    weights = resolve(uri, cache).facts("auto").weight_bytes
    footprint = load(uri, resident_bytes=round(resident * weights)).footprint
    assert footprint.load_peak_bytes == weights + footprint.overhead_bytes
    assert footprint.load_peak_host_bytes <= (1 - resident) * weights * 1.2


@ALL
@pytest.mark.parametrize(
    ("tokens", "sequences", "before"), [(1, 1, 0), (1, 8, 0), (40, 1, 100), (128, 1, 0), (16, 3, 8)]
)
def test_a_step_allocates_no_more_than_it_accounts(
    uri: str, tokens: int, sequences: int, before: int, load: Load
) -> None:
    runtime = load(uri)
    started = [runtime.new_sequence(tokens + before) for _ in range(sequences)]
    if before:
        for sequence in started:
            runtime.step([(sequence, [1] * before)])
    with AllocationMeter() as meter:
        runtime.step([(sequence, [1] * tokens) for sequence in started])
    counted = runtime._activations.of(tokens * sequences, sequences)
    assert counted * 0.3 <= meter.peak <= counted


def test_the_logits_of_every_sequence_are_accounted(load: Load) -> None:
    runtime = load(f"{LLAMA}&vocab=16384")
    started = [runtime.new_sequence(1) for _ in range(8)]
    with AllocationMeter() as meter:
        runtime.step([(sequence, [1]) for sequence in started])
    assert 8 * 16384 * 4 <= meter.peak <= runtime._activations.of(8, 8)


def missing(tensors: dict[str, Any]) -> None:
    del tensors["model.layers.2.mlp.up_proj.weight"]


def misshapen(tensors: dict[str, Any]) -> None:
    dtype, _, n_bytes = tensors["model.layers.2.mlp.up_proj.weight"]
    tensors["model.layers.2.mlp.up_proj.weight"] = (dtype, (64, 192), n_bytes)


def surplus(tensors: dict[str, Any]) -> None:
    tensors["model.layers.2.extra.weight"] = tensors["model.norm.weight"]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (missing, r"the weight model\.layers\.2\.mlp\.up_proj\.weight is missing in .*/damaged"),
        (misshapen, r"model\.layers\.2\.mlp\.up_proj\.weight in .*/damaged has the shape \[64, 192\], .* \[192, 64\]"),
        (surplus, r"/damaged has weights that LlamaForCausalLM doesn't know: model\.layers\.2\.extra\.weight"),
    ],
)
def test_weights_that_dont_fit_the_config_are_named(
    damage: Callable[[dict[str, Any]], None], says: str, load: Load, cache: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(resolve(LLAMA, cache).path, folder)
    file = folder / "model.safetensors"
    tensors = {t.name: (t.dtype, t.shape, t.values * 4) for t in read_header(file, "test")}
    damage(tensors)
    write_file(file, tensors, (bytes(n) for _, _, n in tensors.values()))
    with pytest.raises(BadModel, match=says):
        load(f"file://{folder}")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"model_type": "no-such-model"}, "no model can be built of .*config.json"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "position encoding"),
    ],
)
def test_a_model_that_cant_be_run_is_refused(
    fields: dict[str, Any], says: str, load: Load, cache: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "strange"
    shutil.copytree(resolve(LLAMA, cache).path, folder)
    config = json.loads((folder / "config.json").read_text()) | fields
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadModel, match=says):
        load(f"file://{folder}")


def test_a_model_that_changed_since_it_was_deployed_is_refused(load: Load) -> None:
    with pytest.raises(BadModel, match="its files have changed"):
        load(LLAMA, digest="0" * 64)
