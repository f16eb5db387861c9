"""Redis can't be reached, or does not answer."""

from __future__ import annotations


class StoreUnavailable(Exception):
    """Redis is away; `str()` says which one and what happened. Nothing that runs may be stopped because of it."""
