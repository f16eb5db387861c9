"""The socket that the gateway listens on, the server behind it, and the file that says which port it is."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

BACKLOG = 1024
KEEP_ALIVE_S = 75
"""Longer than clients keep idle connections, so that none is closed under a request that just sets out."""


class QuietServer(uvicorn.Server):
    """Leaves signals alone: how the process ends is the gateway's affair."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def server(app: ASGIApp, finish_s: float) -> QuietServer:
    """`finish_s`: connections that are open when it is told to exit may last so long."""
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, round(finish_s)),
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    return QuietServer(config)


def listening_socket(host: str, port: int) -> socket.socket:
    """Raises OSError with the address when it is taken."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise OSError(f"{host}:{port} can't be listened on ({error.strerror}); set port to 0 or another one") from error
    made.listen(BACKLOG)
    return made


def write_port(file: Path, port: int) -> None:
    """Whole or not at all."""
    new = file.with_name(f".{file.name}.{os.getpid()}")
    new.write_text(f"{port}\n")
    new.replace(file)


def allow_files(wanted: int) -> int:
    """Raise the limit of open files (each request needs two) towards `wanted`; returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else soft
