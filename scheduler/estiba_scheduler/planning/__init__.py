"""Planning: a snapshot in, a plan out. Pure and deterministic."""

from .pipeline import plan

__all__ = ["plan"]
