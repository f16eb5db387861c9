"""The profile store: what agents, gateways and the decider tell each other through Redis."""

from .buffered_writer import BufferedWriter
from .decision import Decision
from .local_redis import LocalRedis, RedisDidNotStart, redis_server
from .store import Store
from .unavailable import StoreUnavailable

__all__ = [
    "BufferedWriter",
    "Decision",
    "LocalRedis",
    "RedisDidNotStart",
    "Store",
    "StoreUnavailable",
    "redis_server",
]
