"""Folders that are made once and then kept: made beside, under a lock, and renamed into place when whole."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from estiba_scheduler.quantities import format_bytes

from .bad_model import BadModel

log = logging.getLogger(__name__)

Progress = Callable[[str], None]
DEFAULT_CACHE = Path("~/.cache/estiba/models")
LOCK_DEADLINE_S = 1800.0
SAY_EVERY_S = 5.0


def kept(
    cache: Path, key: str, make: Callable[[Path], None], *, uri: str, need_bytes: int, progress: Progress | None = None
) -> Path:
    """The folder `cache/key`, made by `make(empty folder)` if it isn't there yet.

    One process makes it, others wait. Raises BadModel when the disk has no room or the wait passes its deadline.
    """
    folder = cache / key
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with _lock(cache / f"{key}.lock", uri, progress):
        if folder.is_dir():
            return folder
        for left_over in cache.glob(f".{key}.*.part"):  # of a process that died: we hold its lock
            shutil.rmtree(left_over, ignore_errors=True)
        free = shutil.disk_usage(cache).free
        if free < need_bytes:
            raise BadModel(
                uri,
                f"{format_bytes(need_bytes)} are needed in {cache}, {format_bytes(free)} are free; make room "
                "there or choose another model cache",
            )
        part = cache / f".{key}.{os.getpid()}.part"
        part.mkdir()
        try:
            make(part)
            part.rename(folder)
        finally:
            if part.exists():
                shutil.rmtree(part, ignore_errors=True)
    return folder


def tell(progress: Progress | None, text: str) -> None:
    """To the log and, where somebody listens, to them."""
    log.info("%s", text)
    if progress is not None:
        progress(text)


@contextmanager
def _lock(file: Path, uri: str, progress: Progress | None) -> Iterator[None]:
    began = said = time.monotonic()
    with file.open("w") as stream:
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                now = time.monotonic()
                if now - began > LOCK_DEADLINE_S:
                    raise BadModel(
                        uri, f"another process has held {file} for {LOCK_DEADLINE_S:.0f} s; end it or remove the file"
                    ) from None
                if now - said > SAY_EVERY_S:
                    said = now
                    tell(progress, f"waiting for another process to make {file.stem} ({now - began:.0f} s)")
                time.sleep(0.1)
        yield
