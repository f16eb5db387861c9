"""How each deployment stands after the pass, where no decision has said it already."""

from __future__ import annotations

from ..domain import DeviceHealth, Instance, InstanceState, Reason, Rung
from ..prediction import wake_s
from .allotment import appraiser
from .cluster import rung_of, serving
from .draft import Draft
from .standing import Standing
from .wording import share, short, size, span


def report(draft: Draft) -> None:
    """Add the missing verdicts; every deployment gets exactly one."""
    for standing in draft.standings.values():
        if standing.id in draft.verdicts:
            continue
        if standing.up:
            _up(draft, standing, _foremost(standing))
        elif standing.failed:
            _failed(draft, standing, standing.failed[0])
        elif standing.sleepers:
            _asleep(draft, standing, standing.sleepers[0])
        elif standing.going:
            draft.say(standing.id, Reason.STOPPED, f"{short(standing.id)} is being stopped")
        else:
            _absent(draft, standing)


def _foremost(standing: Standing) -> Instance:
    return min(standing.up, key=lambda i: (not serving(i), i.state is not InstanceState.READY, i.id))


def _up(draft: Draft, standing: Standing, instance: Instance) -> None:
    status = instance.status
    if status is None or status.state is not InstanceState.READY:
        profile = draft.profile(standing, instance.spec.device)
        draft.say(
            standing.id,
            Reason.STARTED,
            f"{short(standing.id)} is {instance.state} on {instance.spec.device}",
            wake_s=wake_s(profile, Rung.COLD) if profile else None,
        )
        return
    device = draft.cluster.devices.get(instance.spec.device)
    appraise = appraiser(draft.cluster, standing, device, draft.rivals(device)) if device else None
    tpot = appraise.tpot_s(status.resident_bytes) if appraise else None
    words = f", predicted {span(tpot)} a token" if tpot is not None else ""
    where = f"on {instance.spec.device}, {share(status.resident_fraction)} resident{words}"
    if status.offload_effective is False:
        draft.say(
            standing.id,
            Reason.OFFLOAD_INEFFECTIVE,
            f"serving {where}; {size(instance.spec.resident_bytes)} of weights were asked to stay on the device and "
            f"{size(status.resident_bytes)} did: it is not resized any more",
            tpot_s=tpot,
        )
        return
    if device is not None and device.health is not DeviceHealth.HEALTHY:
        draft.say(standing.id, Reason.DEVICE_UNHEALTHY, f"serving {where}; the device is {device.health}", tpot_s=tpot)
        return
    draft.say(standing.id, Reason.SERVING, f"serving {where}", tpot_s=tpot)


def _asleep(draft: Draft, standing: Standing, instance: Instance) -> None:
    profile = draft.profile(standing, instance.spec.device)
    rung = rung_of(instance)
    back = wake_s(profile, rung) if profile else None
    words = f", wakes in {span(back)}" if back is not None else ""
    level = 1 if rung is Rung.SLEEP1 else 2
    draft.say(standing.id, Reason.ASLEEP, f"{short(standing.id)} is asleep level {level}{words}", wake_s=back)


def _failed(draft: Draft, standing: Standing, instance: Instance) -> None:
    status = instance.status
    assert status is not None
    known = status.reason in set(Reason)
    draft.say(
        standing.id,
        Reason(status.reason) if known else Reason.ENGINE_EXITED,
        f"{short(standing.id)} failed: {status.message or status.reason or 'no message'}",
    )


def _absent(draft: Draft, standing: Standing) -> None:
    profile = draft.cluster.any_profile(standing.id)
    back = wake_s(profile, Rung.COLD) if profile else None
    words = f"; a start takes about {span(back)}" if back is not None else ""
    draft.say(standing.id, Reason.NO_DEMAND, f"{short(standing.id)} does not run: no requests{words}", wake_s=back)
