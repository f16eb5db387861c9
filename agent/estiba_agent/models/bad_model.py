"""The one error about a model: which one, what is wrong with it, and what to do."""

from __future__ import annotations


class BadModel(Exception):
    """A model that can't be found, read or run. `message` says what to do about it."""

    def __init__(self, uri: str, message: str) -> None:
        super().__init__(f"{uri}: {message}")
        self.uri = uri
        self.message = message

    def __reduce__(self) -> tuple[type[BadModel], tuple[str, str]]:
        return type(self), (self.uri, self.message)
