"""What a plan says, for people and as JSON."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from estiba_scheduler.domain import Action, ActionKind, Plan, Provenance, Snapshot
from estiba_scheduler.quantities import format_bytes, format_seconds

NOTHING = "–"


def plan_as_json(plan: Plan) -> dict[str, Any]:
    """Actions and verdicts, without what one pass remembers for the next."""
    return plan.model_dump(mode="json", include={"actions", "verdicts", "next_pass_s"})


def render_plan(snapshot: Snapshot, plan: Plan, console: Console) -> None:
    """Tables of what would be done, how each deployment then stands, and what each device holds before and after."""
    if any(p.footprint.provenance is Provenance.ESTIMATED for of in snapshot.profiles.values() for p in of.values()):
        console.print("some of the figures that this rests on are estimated, not measured", style="yellow")
    console.print(_actions(plan))
    console.print(_verdicts(plan))
    console.print(_devices(snapshot, plan))
    if plan.next_pass_s is not None:
        console.print(f"a decision may change in {format_seconds(plan.next_pass_s)}")


def _actions(plan: Plan) -> Table:
    table = _table("WHAT", "MODEL", "INSTANCE", "DEVICE", "RESIDENT", "REASON", "WHY, WITH THE NUMBERS")
    for action in plan.actions:
        what = action.kind.value if action.level is None else f"{action.kind.value} {action.level}"
        runs = action.kind in (ActionKind.START, ActionKind.WAKE, ActionKind.RESIZE)
        table.add_row(
            what,
            _short(action.deployment),
            action.instance or "new",
            action.device,
            format_bytes(action.resident_bytes) if runs else NOTHING,
            action.reason.value,
            action.message,
        )
    if not plan.actions:
        table.add_row("nothing", *[""] * 6)
    return table


def _verdicts(plan: Plan) -> Table:
    table = _table("MODEL", "REASON", "TPOT", "WAKE", "WHY")
    for verdict in plan.verdicts:
        table.add_row(
            _short(verdict.deployment),
            verdict.reason.value,
            NOTHING if verdict.predicted_tpot_s is None else format_seconds(verdict.predicted_tpot_s),
            NOTHING if verdict.wake_s is None else format_seconds(verdict.wake_s),
            verdict.message,
        )
    return table


def _devices(snapshot: Snapshot, plan: Plan) -> Table:
    table = _table("DEVICE", "PRODUCT", "USABLE", "BUDGETS BEFORE", "BUDGETS AFTER")
    for node in snapshot.nodes:
        for device in node.devices:
            held = {
                i.id: _held(i.status, i.spec.budget_bytes) for i in snapshot.instances if i.spec.device == device.uuid
            }
            after = dict(held)
            for number, action in enumerate(a for a in plan.actions if a.device == device.uuid):
                after[action.instance or f"new {number}"] = _after(action)
            table.add_row(
                device.uuid,
                device.product,
                format_bytes(device.usable_bytes),
                format_bytes(sum(held.values())),
                format_bytes(sum(after.values())),
            )
    return table


def _held(status: Any, budget_bytes: int) -> int:
    return int(status.device_bytes) if status is not None else budget_bytes


def _after(action: Action) -> int:
    return 0 if action.kind is ActionKind.EVICT else action.budget_bytes


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=number < len(columns) - 1)
    return table


def _short(deployment: str) -> str:
    return deployment.removeprefix("default/")
