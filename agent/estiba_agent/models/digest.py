"""Digests of contents. A file is read once; its digest is remembered for as long as the file is unchanged."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from .bad_model import BadModel


def file_digest(file: Path, cache: Path, uri: str) -> str:
    """SHA-256 of a file's contents, as hex digits. Raises BadModel when it can't be read."""
    try:
        stat = file.stat()
        identity = f"{file.resolve()}|{stat.st_ino}|{stat.st_size}|{stat.st_mtime_ns}"
        memo = cache / "digests" / hashlib.sha256(identity.encode()).hexdigest()
        if memo.is_file() and len(known := memo.read_text()) == 64:
            return known
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        memo.parent.mkdir(parents=True, exist_ok=True)
        part = memo.with_name(f"{memo.name}.{os.getpid()}")
        part.write_text(digest)
        part.replace(memo)
    except OSError as error:
        raise BadModel(uri, f"{file} can't be read: {error}") from error
    return digest


def folder_digest(files: Iterable[Path], cache: Path, uri: str) -> str:
    """SHA-256 over the names and digests of these files, in the order of their names."""
    whole = hashlib.sha256()
    for file in sorted(files, key=lambda f: f.name):
        whole.update(f"{file.name} {file_digest(file, cache, uri)}\n".encode())
    return whole.hexdigest()
