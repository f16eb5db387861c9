"""Supervision of engine processes: a pure machine that decides, and a thin edge that does."""
