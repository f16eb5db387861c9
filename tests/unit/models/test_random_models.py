"""Random models: the same words, the same bytes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from estiba_agent.models import BadModel, RandomModel, make_random, resolve

from .folders import GPT_NEOX, LLAMA, QWEN3, TINY


@pytest.mark.parametrize("uri", [LLAMA, QWEN3, GPT_NEOX])
def test_the_same_uri_makes_the_same_bytes(uri: str, tmp_path: Path) -> None:
    first, second = resolve(uri, tmp_path / "a"), resolve(uri, tmp_path / "b")
    assert first.digest == second.digest
    assert _weights(first.path) == _weights(second.path)


def test_the_seed_changes_bytes_and_digest(tmp_path: Path) -> None:
    first, second = resolve(LLAMA, tmp_path), resolve(f"{LLAMA}&seed=1", tmp_path)
    assert first.digest != second.digest
    assert _weights(first.path) != _weights(second.path)


def test_words_in_another_order_are_the_same_model(tmp_path: Path) -> None:
    parts = LLAMA.partition("?")
    turned = f"{parts[0]}?{'&'.join(reversed(parts[2].split('&')))}"
    assert resolve(turned, tmp_path).path == resolve(LLAMA, tmp_path).path


def test_a_model_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    said: list[str] = []
    resolve(LLAMA, tmp_path, said.append)
    assert said
    said.clear()
    resolve(LLAMA, tmp_path, said.append)
    assert said == []


def test_a_folder_that_is_made_says_that_it_is_random(tmp_path: Path) -> None:
    folder = make_random(LLAMA, tmp_path / "out", tmp_path / "cache")
    assert "random" in folder.name
    assert resolve(f"file://{folder}", tmp_path / "cache").architecture == "LlamaForCausalLM"
    with pytest.raises(BadModel, match="exists already"):
        make_random(LLAMA, tmp_path / "out", tmp_path / "cache")


def test_the_tokenizer_of_another_model_is_taken(tmp_path: Path) -> None:
    source = make_random(LLAMA, tmp_path / "out", tmp_path / "cache")
    uri = f"random://llama?hidden=32&layers=1&heads=2&vocab=300&tokenizer=file://{source}"
    made = resolve(uri, tmp_path / "cache").path
    assert (made / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("random://mamba?hidden=64", "'mamba' is not known; write random:// and one of llama, qwen3, gpt_neox"),
        (f"random://llama?{TINY}&depth=3", "'depth' is not known"),
        ("random://llama?hidden=many", "hidden=many is not a whole number"),
        ("random://llama?hidden=-64", "hidden=-64 is not a whole number"),
        ("random://llama?layers=0", r"layers=0 is out of bounds \(1 to 1024\)"),
        ("random://llama?layers=99999999", "layers=99999999 is out of bounds"),
        ("random://llama?hidden=64&heads=5", "hidden=64 over heads=5"),
        ("random://llama?hidden=64&heads=4&kv_heads=3", "heads=4 must be a multiple of kv_heads=3"),
        ("random://gpt_neox?hidden=64&heads=4&kv_heads=2", "no grouped heads"),
        ("random://llama?dtype=int8", "dtype=int8 is not known; write one of float32"),
    ],
)
def test_a_wrong_word_is_named_with_the_fix(uri: str, says: str) -> None:
    with pytest.raises(BadModel, match=says):
        RandomModel.parse(uri)


def test_a_vocabulary_smaller_than_the_tokenizers_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match="vocab=100 is smaller than its tokenizer's 259 tokens; write vocab=259"):
        resolve("random://llama?hidden=32&layers=1&heads=2&vocab=100&tokenizer=bytes", tmp_path)
    assert [p.name for p in tmp_path.iterdir() if p.is_dir()] == []


def test_facts_need_no_tensor_library(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from estiba_agent.models import resolve\n"
        f"resolve({LLAMA!r}, Path({str(tmp_path)!r})).facts('auto')\n"
        "heavy = {'torch', 'transformers', 'safetensors'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def _weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()
