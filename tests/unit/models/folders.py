"""Model folders for tests: tiny, random, and easy to damage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from estiba_agent.models import make_random
from estiba_agent.models.safetensors_file import read_header, write_file

TINY = "hidden=64&layers=4&intermediate=128&heads=4&tokenizer=bytes"
LLAMA = f"random://llama?{TINY}&kv_heads=2"
QWEN3 = f"random://qwen3?{TINY}&kv_heads=2"
GPT_NEOX = f"random://gpt_neox?{TINY}"


def a_model_folder(where: Path, uri: str = LLAMA) -> Path:
    return make_random(uri, where / "models", where / "cache")


def change_config(folder: Path, **fields: object) -> None:
    """Set fields of config.json; None removes one."""
    file = folder / "config.json"
    config = json.loads(file.read_text()) | fields
    file.write_text(json.dumps({name: value for name, value in config.items() if value is not None}))


def rewrite_weights(
    folder: Path, change: Callable[[dict[str, tuple[str, tuple[int, ...], int]]], None], file: str = "model.safetensors"
) -> None:
    """Write the weights anew, as zeros, with the names, types and shapes that `change` leaves."""
    tensors = {t.name: (t.dtype, t.shape, t.values * 4) for t in read_header(folder / "model.safetensors", "test")}
    change(tensors)
    write_file(folder / file, tensors, (bytes(n_bytes) for _, _, n_bytes in tensors.values()))
