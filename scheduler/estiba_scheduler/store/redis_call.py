"""One call to Redis: an answer within the deadline, or StoreUnavailable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

import redis.asyncio as redis_asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError

from .unavailable import StoreUnavailable

T = TypeVar("T")

TextRedis = Any
"""A redis.asyncio.Redis with decode_responses: its type can't say that every answer is text then."""


def connect(url: str, timeout_s: float) -> TextRedis:
    """Raises ValueError for a URL that is not one of Redis. Nothing is sent yet.

    `timeout_s` bounds connecting; what is sent and read is bounded by `call`. The client's own `socket_timeout` is
    off: it sends through `asyncio.wait_for`, which up to Python 3.11 may swallow a cancellation, and whoever was
    cancelled then would go on for ever.
    """
    try:
        return redis_asyncio.Redis.from_url(
            url,
            decode_responses=True,
            socket_timeout=None,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 1),  # once: a connection that was kept may have died with the last server
        )
    except ValueError as error:
        raise ValueError(
            f"{shown(url)!r} is not the address of a Redis ({error}); write redis://host:port/0 or unix:///path"
        ) from error


def shown(url: str) -> str:
    """The URL without user, password and query, for logs and status."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


async def call(where: str, timeout_s: float, ask: Callable[[], Awaitable[T]]) -> T:
    """Raises StoreUnavailable, after `timeout_s` at the latest."""
    try:
        async with asyncio.timeout(timeout_s):
            return await ask()
    except TimeoutError as error:
        raise StoreUnavailable(f"Redis at {where} did not answer within {timeout_s:g} s") from error
    except AuthenticationError as error:
        raise StoreUnavailable(f"Redis at {where} refuses our credentials") from error
    except (RedisError, OSError) as error:
        raise StoreUnavailable(f"Redis at {where}: {error or type(error).__name__}") from error
