"""Talks to a running `estiba up` over its unix socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from .exits import CommandError, UsageError


class UpNotRunning(CommandError):
    """No `estiba up` answers on this state directory."""


class UpClient:
    """Raises UpNotRunning, UsageError for what was given wrongly, CommandError for the rest."""

    def __init__(self, state_dir: Path, timeout_s: float = 30.0) -> None:
        self._state_dir = state_dir
        self._socket = state_dir / "up.sock"
        transport = httpx.HTTPTransport(uds=str(self._socket))
        self._client = httpx.Client(transport=transport, base_url="http://up", timeout=timeout_s)

    def __enter__(self) -> UpClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str, **params: Any) -> Any:
        return self._ask("GET", path, params=params)

    def post(self, path: str, body: Any, timeout_s: float | None = None) -> Any:
        return self._ask("POST", path, json=body, **({"timeout": timeout_s} if timeout_s else {}))

    def delete(self, path: str) -> Any:
        return self._ask("DELETE", path)

    def _ask(self, method: str, path: str, **more: Any) -> Any:
        try:
            response = self._client.request(method, path, **more)
        except (httpx.ConnectError, FileNotFoundError) as error:
            raise UpNotRunning(
                f"no `estiba up` answers on {self._socket}; start one, or name its --state directory"
            ) from error
        except httpx.HTTPError as error:
            raise CommandError(f"`estiba up` on {self._socket}: {error or type(error).__name__}") from error
        if response.is_success:
            return response.json() if response.content else None
        raise _error_of(response)


def _error_of(response: httpx.Response) -> CommandError:
    try:
        error = response.json()["error"]
        message = str(error["message"])
    except (ValueError, KeyError, TypeError):
        return CommandError(f"`estiba up` answered {response.status_code}: {response.text[:300]}")
    return UsageError(message) if response.status_code in (400, 404, 413, 422) else CommandError(message)
