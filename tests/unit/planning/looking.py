"""What tests look at in a plan."""

from __future__ import annotations

from estiba_scheduler.domain import Action, ActionKind, Plan, Verdict


def actions(plan: Plan, kind: ActionKind | None = None, name: str | None = None) -> list[Action]:
    return [
        a
        for a in plan.actions
        if (kind is None or a.kind is kind) and (name is None or a.deployment == f"default/{name}")
    ]


def the(plan: Plan, kind: ActionKind, name: str) -> Action:
    found = actions(plan, kind, name)
    assert len(found) == 1, f"one {kind} of {name} expected:\n{told(plan)}"
    return found[0]


def verdict(plan: Plan, name: str) -> Verdict:
    return next(v for v in plan.verdicts if v.deployment == f"default/{name}")


def told(plan: Plan) -> str:
    """The story of a plan, printed when a test fails."""
    lines = [f"{a.kind} {a.deployment}: {a.reason}: {a.message}" for a in plan.actions]
    return "\n".join(lines + [f"  {v.deployment}: {v.reason}: {v.message}" for v in plan.verdicts])
