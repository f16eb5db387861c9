"""Two HTTP servers in one event loop: commands on a unix socket, metrics on loopback."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_LIMIT_BYTES = 1024 * 1024
BACKLOG = 128


class QuietServer(uvicorn.Server):
    """Leaves signals alone: the process has two servers and one way to end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def server(app: ASGIApp) -> QuietServer:
    config = uvicorn.Config(
        BoundedBodies(app),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=75,
    )
    return QuietServer(config)


def unix_socket(path: Path) -> socket.socket:
    """One that only this user can speak to. What an earlier process left there is replaced."""
    path.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        made.bind(str(path))
    finally:
        os.umask(before)
    made.listen(BACKLOG)
    return made


def loopback_socket(host: str, port: int) -> socket.socket:
    """Raises OSError with the address when it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise OSError(
            f"{host}:{port} can't be listened on ({error.strerror}); set api_port to 0 or another one"
        ) from error
    made.listen(BACKLOG)
    return made


class BoundedBodies:
    """Answers 413 to a body that is larger than any command."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        taken = 0
        over = False

        async def bounded() -> Message:
            nonlocal taken, over
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > BODY_LIMIT_BYTES:
                over = True
                return {"type": "http.disconnect"}
            return message

        async def answer(message: Message) -> None:
            if not over:
                await send(message)

        await self._app(scope, bounded, answer)
        if over:
            content = b'{"error": {"reason": "Invalid", "message": "the body is larger than 1 MiB"}}'
            headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": 413, "headers": headers})
            await send({"type": "http.response.body", "body": content})
