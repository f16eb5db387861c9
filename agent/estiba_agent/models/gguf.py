"""GGUF files, converted once into a folder of plain weights.

The conversion runs in a process of its own: it imports the tensor libraries and needs memory for the whole model,
and neither should stay with whoever asks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .bad_model import BadModel
from .cache import Progress, kept, tell
from .digest import file_digest

DEADLINE_S = 1800.0
SAY_EVERY_S = 5.0
GROWTH = 10
"""Plain weights take up to this many times the bytes of the quantised file."""


def converted(file: Path, cache: Path, uri: str, progress: Progress | None = None) -> tuple[Path, str]:
    """The folder of plain weights of a GGUF file, and the file's digest. Raises BadModel."""
    digest = file_digest(file, cache, uri)
    need = GROWTH * file.stat().st_size
    folder = kept(
        cache, digest, lambda out: _convert(file, out, uri, progress), uri=uri, need_bytes=need, progress=progress
    )
    return folder, digest


def _convert(file: Path, out: Path, uri: str, progress: Progress | None) -> None:
    tell(progress, f"converting {file.name} to plain weights, once; this takes about half a minute")
    began = time.monotonic()
    command = [sys.executable, "-m", "estiba_agent.models.conversion", str(file), str(out)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=errors, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while True:
                try:
                    code = process.wait(SAY_EVERY_S)
                    break
                except subprocess.TimeoutExpired:
                    elapsed = time.monotonic() - began
                    if elapsed > DEADLINE_S:
                        raise BadModel(uri, f"converting {file} took more than {DEADLINE_S:.0f} s; given up") from None
                    tell(progress, f"converting {file.name}: {elapsed:.0f} s")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if code != 0:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines() or [f"exit status {code}"]
            raise BadModel(uri, f"{file} can't be converted to plain weights: {lines[-1]}")
    tell(progress, f"converted {file.name} in {time.monotonic() - began:.0f} s")
