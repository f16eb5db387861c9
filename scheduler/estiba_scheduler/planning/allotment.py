"""What one instance may be given: the residencies its policies allow, what each takes and what each loses."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from ..domain import Device, Footprint, Instance, OffloadMode
from ..prediction import (
    DecodeCurve,
    device_bytes,
    host_bytes,
    kv_minimum_bytes,
    kv_wanted_bytes,
    resident_levels,
)
from .cluster import Cluster
from .ledger import Ledger
from .standing import Standing

KV_PRESSURE = 0.7
"""Share of the KV cache in use from which more of it is wanted."""
MISS_S = 10.0
"""A request served slower than its objective counts as this many seconds lost, beside the slowness itself."""


@dataclass(frozen=True, slots=True)
class Option:
    """One residency: its bytes, and the weighted seconds of requests that it loses per second."""

    resident_bytes: int
    base_bytes: int  # device bytes with the least KV cache
    host_bytes: int
    tpot_s: float
    loss: float


@dataclass(frozen=True, slots=True)
class Allotment:
    """What an instance is given."""

    resident_bytes: int
    kv_bytes: int
    budget_bytes: int
    host_bytes: int
    tpot_s: float
    loss: float


@dataclass(frozen=True, slots=True)
class Item:
    """An instance, running or to be, as residency is divided: its options ascending in bytes."""

    key: str
    standing: Standing
    footprint: Footprint
    factor: float
    options: tuple[Option, ...]
    kv_floor: int
    kv_want: int

    @property
    def worth(self) -> float:
        """Weighted requests per second: who goes first where bytes buy nothing measurable."""
        return self.standing.weight * self.standing.rate_per_s

    def allot(self, option: Option, kv_bytes: int) -> Allotment:
        budget = device_bytes(self.footprint, option.resident_bytes, kv_bytes, self.factor)
        return Allotment(option.resident_bytes, kv_bytes, budget, option.host_bytes, option.tpot_s, option.loss)


class Appraiser:
    """Values residencies of one deployment on one device, with the share of the link that it can count on."""

    def __init__(self, standing: Standing, curve: DecodeCurve, link_share: float | None) -> None:
        self._standing = standing
        self._curve = curve
        self._link_share = link_share
        self.full_s = curve.fully_resident_s()

    def tpot_s(self, resident_bytes: int) -> float:
        return max(self.full_s, self._curve.predict(resident_bytes, link_share_bytes_per_s=self._link_share).tpot_s)

    def loss(self, tpot_s: float) -> float:
        """Weighted seconds lost per second: slower tokens, and requests outside their objective."""
        lost = self._standing.output_tokens * (tpot_s - self.full_s)
        objective = self._standing.deployment.objectives.tpot_s
        if tpot_s > objective >= self.full_s:
            lost += MISS_S
        return self._standing.weight * self._standing.rate_per_s * lost


def appraiser(cluster: Cluster, standing: Standing, device: Device, rivals: list[Standing]) -> Appraiser | None:
    """An appraiser for this deployment on this device; None without a profile. `rivals` may stream beside it."""
    curve = cluster.curve(standing.id, device.uuid)
    if curve is None:
        return None
    return Appraiser(standing, curve, link_share(cluster, device, standing, rivals))


def link_share(cluster: Cluster, device: Device, standing: Standing, rivals: list[Standing]) -> float | None:
    """Bytes/s of the host link that one streaming instance can count on; None where the link is not known.

    Streaming instances share evenly while they run, so each counts for the part of the time that it decodes.
    """
    node = cluster.nodes.get(device.node)
    link = node.link_of(device) if node else None
    rate = link.bandwidth_bytes_per_s if link else None
    if rate is None:
        return None
    others = sum(_duty(cluster, r, device) for r in rivals if r.id != standing.id)
    return rate / (1.0 + others)


def _duty(cluster: Cluster, standing: Standing, device: Device) -> float:
    """Part of the time that a deployment decodes, were it fully resident (a lower bound)."""
    curve = cluster.curve(standing.id, device.uuid)
    if curve is None:
        return 0.0
    return min(1.0, standing.rate_per_s * standing.output_tokens * curve.fully_resident_s())


def item_for(
    cluster: Cluster,
    ledger: Ledger,
    standing: Standing,
    device: Device,
    rivals: list[Standing],
    instance: Instance | None = None,
) -> Item | None:
    """The item of a running instance, or of one to be placed (`instance` None); None where nothing is allowed."""
    profile = cluster.profile(standing.id, device.uuid)
    appraise = appraiser(cluster, standing, device, rivals)
    if profile is None or appraise is None:
        return None
    foot = profile.footprint
    factor = ledger.factor(standing.id, device.uuid)
    want, floor = _useful_kv(standing, foot, appraise.full_s), kv_minimum_bytes(standing.deployment, foot)
    if instance is not None:
        in_use = instance.status.kv_used_bytes if instance.status else 0
        if in_use >= KV_PRESSURE * instance.spec.kv_bytes:
            want = kv_wanted_bytes(standing.deployment, foot)
        floor = min(max(floor, in_use), max(instance.spec.kv_bytes, floor))
        want = max(want, floor)
    options = _options(standing, foot, factor, floor, appraise)
    if not options:
        return None
    return Item(
        key=instance.id if instance else f"new:{standing.id}",
        standing=standing,
        footprint=foot,
        factor=factor,
        options=options,
        kv_floor=floor,
        kv_want=want,
    )


def _useful_kv(standing: Standing, foot: Footprint, full_s: float) -> int:
    """KV cache for the sequences that run at once by Little's law, and one more; at least two, at most a full batch."""
    wanted = kv_wanted_bytes(standing.deployment, foot)
    if standing.deployment.kv_bytes_wanted is not None:
        return wanted
    at_once = ceil(standing.rate_per_s * standing.output_tokens * full_s) + 1
    return min(wanted, max(2, at_once) * kv_minimum_bytes(standing.deployment, foot))


def _options(
    standing: Standing, foot: Footprint, factor: float, kv_floor: int, appraise: Appraiser
) -> tuple[Option, ...]:
    policies = standing.deployment.policies
    floor = policies.min_resident_fraction * foot.weight_bytes
    kept: list[Option] = []
    for level in reversed(resident_levels(foot)):
        full = level >= foot.weight_bytes
        if not full and (policies.offload is OffloadMode.NEVER or level < ceil(floor)):
            break
        tpot = appraise.tpot_s(level)
        if not full and policies.max_slowdown is not None and tpot > policies.max_slowdown * appraise.full_s:
            break
        base = device_bytes(foot, level, kv_floor, factor)
        if kept and base >= kept[-1].base_bytes:
            continue  # the ring of buffers makes it dearer than keeping more: never a choice
        kept.append(Option(level, base, host_bytes(foot, level), tpot, appraise.loss(tpot)))
    return tuple(reversed(kept))
