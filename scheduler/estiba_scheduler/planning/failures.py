"""Failed instances: what is tried again, when, and what stays failed.

An out-of-memory says that the prediction was too low: the factor on it is raised once, and the instance starts anew
with the larger budget; a second one stays `Failed`. Anything else is started anew after a back-off that doubles.
A failure of an engine that had served before (a wake that went wrong, a crash) is first tried again at once: by a
restart, because the cheaper rung is what failed.
"""

from __future__ import annotations

from ..domain import BackOff, Instance, InstanceState, Reason
from ..prediction import device_bytes
from .cluster import going
from .draft import Draft
from .standing import Standing
from .wording import short, size, span

FIRST_DELAY_S = 5.0
LONGEST_DELAY_S = 300.0
FOOTPRINT_STEP = 1.25
FORGIVEN_AFTER_S = 60.0
"""Ready for this long, and earlier failures no longer count."""


def back_off_s(failures: int, served_before: bool = False) -> float:
    """Delay before the next try after so many failures in a row."""
    if served_before and failures <= 1:
        return 0.0
    return float(min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** (failures - 1)))


def recover(draft: Draft) -> None:
    """Decide on every failed instance, and forgive those that serve again."""
    for standing in draft.plannable:
        for instance in standing.failed:
            if instance.id not in draft.acted and not going(instance) and draft.cluster.commandable(instance):
                _decide(draft, standing, instance)
        _forgive(draft, standing)


def _decide(draft: Draft, standing: Standing, instance: Instance) -> None:
    status = instance.status
    assert status is not None, "an instance without status is pending, not failed"
    if status.reason == Reason.OUT_OF_MEMORY:
        _out_of_memory(draft, standing, instance)
        return
    back_off = _counted(draft.back_offs.get(standing.id), standing.id, instance)
    draft.back_offs[standing.id] = back_off
    if draft.now < back_off.retry_at:
        draft.say(
            standing.id,
            Reason.BACK_OFF,
            f"failed {back_off.failures} times ({status.reason or 'no reason given'}: {status.message or 'no message'})"
            f"; tried again in {span(back_off.retry_at - draft.now)}",
            failures=back_off.failures,
            retry_in_s=back_off.retry_at - draft.now,
        )
        if status.device_bytes == 0:
            return  # it holds nothing: its last words stay readable until the next try
    draft.evict(
        instance,
        Reason.ESCALATED,
        f"failed ({status.reason or 'no reason given'}: {status.message or 'no message'}); it goes, and starts anew "
        f"when there is demand",
    )


def _counted(known: BackOff | None, deployment: str, instance: Instance) -> BackOff:
    """The back-off with this failure in it; a failure that is in it already is not counted twice."""
    status = instance.status
    assert status is not None
    if known is not None and known.retry_at >= status.state_since:
        return known
    failures = max((known.failures if known else 0) + 1, status.failures)
    delay = back_off_s(failures, served_before=status.first_ready_at is not None)
    return BackOff(deployment=deployment, failures=failures, retry_at=status.state_since + delay)


def _out_of_memory(draft: Draft, standing: Standing, instance: Instance) -> None:
    spec, status = instance.spec, instance.status
    assert status is not None
    profile = draft.profile(standing, spec.device)
    if profile is None:
        return
    key = str(profile.key)
    larger = device_bytes(profile.footprint, spec.resident_bytes, spec.kv_bytes, FOOTPRINT_STEP)
    if draft.factors.get(key, 1.0) >= FOOTPRINT_STEP and spec.budget_bytes >= larger:
        draft.say(
            standing.id,
            Reason.OUT_OF_MEMORY,
            f"out of memory even with {size(spec.budget_bytes)}, {FOOTPRINT_STEP:g} times the predicted need "
            f"({status.message or 'no message'}); profile it again, or give it less context or batch",
            budget_bytes=spec.budget_bytes,
            factor=draft.factors[key],
        )
        return
    draft.factors[key] = FOOTPRINT_STEP
    draft.evict(
        instance,
        Reason.OUT_OF_MEMORY,
        f"out of memory with {size(spec.budget_bytes)}: the estimate was too low; it is raised to "
        f"{FOOTPRINT_STEP:g} times and tried once more with {size(larger)}",
    )


def _forgive(draft: Draft, standing: Standing) -> None:
    for instance in standing.up:
        status = instance.status
        if status and status.state is InstanceState.READY and standing.id in draft.back_offs:
            if draft.now - status.state_since >= FORGIVEN_AFTER_S:
                del draft.back_offs[standing.id]
            else:
                draft.due(status.state_since + FORGIVEN_AFTER_S)


def blocked_until(draft: Draft, standing: Standing) -> float | None:
    """When this deployment may be tried again; None where nothing holds it back."""
    back_off = draft.back_offs.get(standing.id)
    if back_off is None or back_off.retry_at <= draft.now:
        return None
    draft.say(
        standing.id,
        Reason.BACK_OFF,
        f"{short(standing.id)} could not be brought up {back_off.failures} times in a row; tried again in "
        f"{span(back_off.retry_at - draft.now)}",
        failures=back_off.failures,
        retry_in_s=back_off.retry_at - draft.now,
    )
    return back_off.retry_at
