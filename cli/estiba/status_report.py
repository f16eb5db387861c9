"""Tables for people: models, instances, decisions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from estiba_scheduler.domain import Device, InstanceState, InstanceStatus, Provenance
from estiba_scheduler.quantities import format_bytes, format_seconds
from estiba_scheduler.store import Decision

from .up.status_view import ABSENT, InstanceStanding, ModelStanding, StatusView

NOTHING = "–"
STYLES = {
    InstanceState.READY.value: "green",
    InstanceState.STARTING.value: "yellow",
    InstanceState.PENDING.value: "yellow",
    InstanceState.DRAINING.value: "yellow",
    InstanceState.ASLEEP1.value: "blue",
    InstanceState.ASLEEP2.value: "blue",
    InstanceState.FAILED.value: "bold red",
    ABSENT: "dim",
}


def status_tables(view: StatusView) -> RenderableType:
    parts: list[RenderableType] = [Text(f"problem: {problem}", style="bold red") for problem in view.problems]
    parts += [_models(view.models), _instances(view.instances)]
    if view.models or view.instances:
        parts.append(_whys(view))
    parts += [_device(device, view.instances) for device in view.devices]
    parts += [
        Text(f"measuring {job.deployment} on {job.device}: {job.done} of {job.total}, {job.note}")
        for job in view.jobs
        if job.state == "running"
    ]
    if view.gateway_url:
        parts.append(
            Text(f"OpenAI API {view.gateway_url}/v1   agent {view.agent_url or NOTHING}   policy {view.policy}")
        )
    return Group(*parts)


def decision_table(decisions: Sequence[Decision], title: str = "") -> Table:
    table = _table("WHEN", "MODEL", "WHAT", "REASON", "WHY, WITH THE NUMBERS", title=title)
    for decision in decisions:
        at = datetime.fromtimestamp(decision.at).strftime("%H:%M:%S")
        table.add_row(at, _short(decision.deployment), decision.kind, str(decision.reason), decision.message)
    return table


def _models(models: Sequence[ModelStanding]) -> Table:
    table = _table(
        "MODEL", "STATE", "RESIDENT", "TPOT", "WAKE", "IDLE AFTER", "PRIORITY", "QUEUED", "RUNNING", "PROFILE"
    )
    for model in models:
        table.add_row(
            _short(model.id),
            Text(model.state, style=STYLES.get(model.state, "")),
            _share(model.resident_fraction),
            _tpot(model.tpot_s, model.predicted_tpot_s, model.profile),
            _seconds(model.wake_s, model.profile),
            _seconds(model.idle_after_s, model.profile),
            str(model.priority),
            str(model.queued),
            str(model.in_flight),
            str(model.profile or NOTHING),
        )
    if not models:
        table.add_row("none yet: estiba apply -f FILE", *[""] * 9)
    return table


def _instances(instances: Sequence[InstanceStanding]) -> Table:
    table = _table("INSTANCE", "DEVICE", "STATE", "RESIDENT", "ON DEVICE", "ON HOST", "KV", "WAKE", "PRIORITY")
    for standing in instances:
        spec, status = standing.spec, standing.status
        state = status.state.value if status else InstanceState.PENDING.value
        table.add_row(
            spec.id,
            spec.device,
            Text(state, style=STYLES.get(state, "")),
            _resident(status),
            format_bytes(status.device_bytes) if status else NOTHING,
            format_bytes(status.host_bytes) if status else NOTHING,
            f"{format_bytes(status.kv_used_bytes)} of {format_bytes(status.kv_bytes)}" if status else NOTHING,
            format_seconds(standing.wake_s) if standing.wake_s is not None else NOTHING,
            str(standing.priority),
        )
    if not instances:
        table.add_row("none", *[""] * 8)
    return table


def _whys(view: StatusView) -> Table:
    """Sentences have a table of their own, where a narrow terminal can fold them."""
    table = _table("OF", "REASON", "WHY")
    for model in view.models:
        table.add_row(_short(model.id), model.reason, model.message)
    for standing in view.instances:
        status = standing.status
        if status and status.message:
            table.add_row(standing.spec.id, status.reason, status.message)
        else:
            table.add_row(standing.spec.id, standing.spec.reason, standing.spec.message)
    return table


def _device(device: Device, instances: Sequence[InstanceStanding]) -> Text:
    held = sum(s.status.device_bytes for s in instances if s.status and s.spec.device == device.uuid)
    of_all = f"{format_bytes(held)} of {format_bytes(device.usable_bytes)}"
    line = Text(f"{device.uuid} ({device.product}): {of_all} held, {device.health}")
    if device.detail:
        line.append(f"; {device.detail}")
    return line


def _table(*columns: str, title: str = "") -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title or None, title_justify="left")
    for column in columns:
        sentence = column.startswith("WHY")
        table.add_column(column, no_wrap=not sentence, overflow="fold" if sentence else "ellipsis")
    return table


def _short(deployment: str) -> str:
    return deployment.removeprefix("default/")


def _share(fraction: float | None) -> str:
    return NOTHING if fraction is None else f"{fraction:.0%}"


def _resident(status: InstanceStatus | None) -> str:
    return f"{_share(status.resident_fraction)} ({format_bytes(status.resident_bytes)})" if status else NOTHING


def _tpot(seen: float | None, predicted: float | None, profile: Provenance | None) -> str:
    if seen is not None:
        return format_seconds(seen)
    return NOTHING if predicted is None else f"{format_seconds(predicted)} {_label(profile)}"


def _seconds(seconds: float | None, profile: Provenance | None) -> str:
    if seconds is None:
        return NOTHING
    return f"{format_seconds(seconds)}{' estimated' if profile is Provenance.ESTIMATED else ''}"


def _label(profile: Provenance | None) -> str:
    return "estimated" if profile is Provenance.ESTIMATED else "predicted"
