"""Models: found by URI, converted or made once, and described without a tensor library."""

from .bad_model import BadModel
from .cache import DEFAULT_CACHE
from .random_model import RandomModel
from .resolution import make_random, resolve
from .resolved import ResolvedModel

__all__ = ["DEFAULT_CACHE", "BadModel", "RandomModel", "ResolvedModel", "make_random", "resolve"]
