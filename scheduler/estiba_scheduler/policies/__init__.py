"""Planning policies that share one signature: Estiba's own, and what users have today, to compare with."""

from __future__ import annotations

from collections.abc import Callable

from ..domain import Plan, Snapshot
from ..planning import plan as estiba
from .fit_offload import plan as fit_offload
from .lru_keep_alive import plan as lru_keep_alive

PlanFunction = Callable[[Snapshot, float], Plan]

POLICIES: dict[str, PlanFunction] = {"estiba": estiba, "lru": lru_keep_alive, "fit": fit_offload}


def by_name(name: str) -> PlanFunction:
    """The plan function of that name. Raises ValueError naming those that exist."""
    if name not in POLICIES:
        raise ValueError(f"no policy is called {name!r}; there are {', '.join(POLICIES)}")
    return POLICIES[name]


__all__ = ["POLICIES", "PlanFunction", "by_name"]
