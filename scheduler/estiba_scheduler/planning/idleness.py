"""Putting idle models away: after the time at which holding them has cost as much as bringing them back."""

from __future__ import annotations

from ..domain import Instance, Reason
from ..prediction import idle_s
from .cluster import serving
from .draft import Draft
from .rungs import PutAway, allowed, put_away
from .standing import Standing
from .wording import short, size, span


def rest(draft: Draft) -> None:
    """Put away what has been idle for its idle time; set the alarm for what will be."""
    for standing in draft.plannable:
        if standing.idle_at is None or standing.wanted > 0:
            if standing.idle_at is not None and standing.deployment.min_replicas == 0 and standing.has_up:
                draft.due(standing.idle_at)
            continue
        for instance in standing.up:
            if serving(instance) and instance.id not in draft.acted and draft.cluster.commandable(instance):
                _put_to_rest(draft, standing, instance)


def _put_to_rest(draft: Draft, standing: Standing, instance: Instance) -> None:
    profile = draft.profile(standing, instance.spec.device)
    if profile is None:
        return
    way, short_of_host = _best_way(draft, standing, instance)
    if way is None:
        if short_of_host:
            draft.say(
                standing.id,
                Reason.HOST_MEMORY,
                f"idle, but {short_of_host}, and its policy allows no lower rung "
                f"than {standing.deployment.policies.lowest_rung}",
            )
        return
    idle_for = draft.now - (standing.last_busy_at or draft.now)
    limit = standing.idle_after_s or 0.0
    if standing.deployment.policies.idle_s is None:
        # Where host memory forces a dearer rung, holding pays for longer.
        limit = idle_s(profile, way.rung)
    if idle_for < limit:
        draft.due(draft.now + limit - idle_for)
        return
    because = f"; {short_of_host}" if short_of_host else ""
    draft.put_away(
        instance,
        way,
        Reason.IDLE,
        f"{way.words}: idle {span(idle_for)} (idle time {span(limit)}), {_back(way)}; frees "
        f"{size(max(0, instance.spec.budget_bytes - way.device_bytes))}{because}",
        idle_s=idle_for,
        idle_after_s=limit,
    )
    draft.say(
        standing.id,
        Reason.HOST_MEMORY if short_of_host else Reason.IDLE,
        f"{short(standing.id)} is being put away ({way.words}): idle {span(idle_for)}{because}",
        wake_s=way.wake_s,
    )


def _back(way: PutAway) -> str:
    return f"wakes in {span(way.wake_s)}" if way.level else f"starts again in {span(way.wake_s)}"


def _best_way(draft: Draft, standing: Standing, instance: Instance) -> tuple[PutAway | None, str]:
    """The best allowed rung that host memory has room for, and what was wrong with a better one."""
    profile = draft.profile(standing, instance.spec.device)
    if profile is None:
        return None, ""
    own = frozenset({instance.id})
    node = instance.spec.node
    room = min(draft.ledger.host_room_now(node, own), draft.ledger.host_room_then(node, own))
    complaint = ""
    for rung in allowed(standing.deployment, profile):
        way = put_away(profile, rung)
        if way.level is None or way.host_bytes <= room:
            return way, complaint
        complaint = complaint or (
            f"level {way.level} needs {size(way.host_bytes)} of host memory and {size(max(0, room))} are free"
        )
    return None, complaint
