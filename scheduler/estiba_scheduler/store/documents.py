"""Documents in Redis: written as JSON that is known to be readable, read with what is unreadable set aside.

An unreadable document never stops a reader: it is moved to the quarantine, logged, and the others are returned.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from pydantic import ValidationError

from ..domain import Value
from . import keys
from .redis_call import TextRedis

log = logging.getLogger(__name__)

V = TypeVar("V", bound=Value)

MOST_QUARANTINED = 100
LONGEST_QUARANTINED = 4000

# Only what was read is moved: the writer may have put a good document there in the meantime.
_MOVE_FIELD = """
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
return 1
"""
_MOVE_STRING = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
return 1
"""


def written(value: Value) -> str:
    """The JSON of a document. Raises ValidationError when it could not be read again (NaN, a wrong copy)."""
    text = value.model_dump_json()
    type(value).model_validate_json(text)
    return text


class Documents:
    """Reading of hashes and of sets of expiring strings, in one Redis."""

    def __init__(self, redis: TextRedis) -> None:
        self._redis = redis

    async def of_hash(self, key: str, kind: type[V], name_of: Callable[[V], str]) -> list[V]:
        """All documents of a hash, by name."""
        await self._require_type(key, "hash")
        found: dict[str, str] = await self._redis.hgetall(key)
        read: list[V] = []
        for field, text in sorted(found.items()):
            value = _read(kind, name_of, field, text)
            if isinstance(value, str):
                if await self._redis.eval(_MOVE_FIELD, 1, key, field, text):
                    await self._quarantine(f"{key} {field}", value, text)
            else:
                read.append(value)
        return read

    async def field(self, key: str, field: str, kind: type[V], name_of: Callable[[V], str]) -> V | None:
        await self._require_type(key, "hash")
        text: str | None = await self._redis.hget(key, field)
        if text is None:
            return None
        value = _read(kind, name_of, field, text)
        if isinstance(value, str):
            if await self._redis.eval(_MOVE_FIELD, 1, key, field, text):
                await self._quarantine(f"{key} {field}", value, text)
            return None
        return value

    async def expiring(self, index: str, kind: type[V], name_of: Callable[[V], str] | None = None) -> list[V]:
        """All documents named by the set `index` whose time has not run out, by name."""
        await self._require_type(index, "set")
        names = sorted(await self._redis.smembers(index))
        if not names:
            return []
        texts = await self._redis.mget([keys.document(index, name) for name in names])
        gone = [name for name, text in zip(names, texts, strict=True) if text is None]
        if gone:
            await self._redis.srem(index, *gone)  # a writer adds its name again with every heartbeat
        read: list[V] = []
        for name, text in zip(names, texts, strict=True):
            if text is None:
                continue
            value = _read(kind, name_of, name, text)
            if isinstance(value, str):
                if await self._redis.eval(_MOVE_STRING, 1, keys.document(index, name), text):
                    await self._quarantine(keys.document(index, name), value, text)
            else:
                read.append(value)
        return read

    async def put_expiring(self, index: str, name: str, value: Value, ttl_s: float) -> None:
        text = written(value)
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.set(keys.document(index, name), text, px=max(1, round(ttl_s * 1000)))
            pipe.sadd(index, name)
            await pipe.execute()

    async def quarantined(self) -> dict[str, str]:
        """Where it was -> why it could not be read."""
        found: dict[str, str] = await self._redis.hgetall(keys.QUARANTINE)
        return {where: str(json.loads(text)["why"]) for where, text in sorted(found.items())}

    # -- inner ------------------------------------------------------------------------------------------------------

    async def _require_type(self, key: str, kind: str) -> None:
        """Something of another kind under our name is set aside whole."""
        found = await self._redis.type(key)
        if found not in (kind, "none"):
            await self._redis.rename(key, f"{keys.QUARANTINE}:{key}")
            await self._quarantine(key, f"is a {found}, not a {kind}; kept as {keys.QUARANTINE}:{key}", "")

    async def _quarantine(self, where: str, why: str, text: str) -> None:
        log.error("the document at %s can't be read and was set aside: %s", where, why)
        known = await self._redis.hlen(keys.QUARANTINE)
        if known >= MOST_QUARANTINED and not await self._redis.hexists(keys.QUARANTINE, where):
            log.error("the quarantine is full (%d documents), this one is dropped", known)
            return
        note = json.dumps({"why": why, "document": text[:LONGEST_QUARANTINED]})
        await self._redis.hset(keys.QUARANTINE, where, note)


def read_all(kind: type[V], texts: Iterable[str]) -> list[V]:
    """Those that can be read; the others are logged (what lies in a stream stays there until it is trimmed)."""
    read = []
    for text in texts:
        value = _read(kind, None, "", text)
        if isinstance(value, str):
            log.error("a %s in the store can't be read: %s", kind.__name__, value)
        else:
            read.append(value)
    return read


def _read(kind: type[V], name_of: Callable[[V], str] | None, name: str, text: str) -> V | str:
    """The value, or why there is none."""
    try:
        value = kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        return f"not a {kind.__name__}: {path + ': ' if path else ''}{first['msg']} ({error.error_count()} errors)"
    if name_of is not None and name_of(value) != name:
        return f"says that it is {name_of(value)!r}, but lies under {name!r}"
    return value
