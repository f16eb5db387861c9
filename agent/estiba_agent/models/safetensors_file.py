"""Headers of safetensors files, read and written without a tensor library."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from .bad_model import BadModel

HEADER_LIMIT = 100_000_000
"""Bytes; the format's own limit."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor in a file. `dtype` is the format's own name (`F32`); `name` is as stored."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path

    @property
    def values(self) -> int:
        return prod(self.shape)


def read_header(file: Path, uri: str) -> list[StoredTensor]:
    """The tensors in `file`. Raises BadModel when it is not a whole safetensors file."""
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 2 <= length <= min(HEADER_LIMIT, size - 8):
                raise BadModel(uri, f"{file} is not a safetensors file, or it is cut off; fetch it again")
            header = json.loads(stream.read(length))
        entries = [(name, entry) for name, entry in header.items() if name != "__metadata__"]
        end = max((entry["data_offsets"][1] for _, entry in entries), default=0)
        missing = 8 + length + end - size
        if missing > 0:
            raise BadModel(uri, f"{file} is cut off: {missing} bytes are missing at its end; fetch it again")
        return [StoredTensor(name, entry["dtype"], tuple(entry["shape"]), file) for name, entry in entries]
    except OSError as error:
        raise BadModel(uri, f"{file} can't be read: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise BadModel(uri, f"{file} has a damaged safetensors header ({error}); fetch it again") from error


def write_file(file: Path, tensors: Mapping[str, tuple[str, tuple[int, ...], int]], data: Iterable[bytes]) -> None:
    """Write tensors one after the other: name -> (dtype, shape, bytes), and the bytes of each in the same order."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape, n_bytes) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + n_bytes]}
        at += n_bytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little"))
        stream.write(text)
        written = sum(stream.write(piece) for piece in data)
    if written != at:
        raise ValueError(f"{file}: {written} bytes of weights were written, the header says {at}")
