"""What every instance holds and will hold, rebuilt from observations in each pass.

Two figures per instance. `now` is the most that it may hold until what is in progress is done: the larger of what
it holds and what it is to hold. `then` is what it holds once everything decided so far has been carried out.
Something may begin only when it fits beside every `now`; a decision is sound only when every `then` fits.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..domain import ASLEEP, DesiredState, Device, Instance, InstanceState
from ..prediction import asleep_device_bytes, asleep_host_bytes, device_bytes, host_bytes
from .cluster import Cluster, going, rung_of, sleeping


@dataclass(frozen=True, slots=True)
class Holding:
    """Bytes of one instance on its device and in its node's host memory."""

    device: str
    node: str
    device_now: int
    device_then: int
    host_now: int
    host_then: int


class Ledger:
    """Holdings of one pass. Decisions enter it as they are made, so that later ones see them."""

    def __init__(self, cluster: Cluster, factors: dict[str, float]) -> None:
        self._cluster = cluster
        self._factors = factors
        self._holdings = {i.id: self._observed(i) for i in cluster.instances}
        self._reserved: dict[tuple[str, str], int] = {}

    def factor(self, deployment: str, device: str) -> float:
        """Factor on predicted bytes: raised after an out-of-memory of this profile."""
        profile = self._cluster.profile(deployment, device)
        return self._factors.get(str(profile.key), 1.0) if profile else 1.0

    def holding(self, key: str) -> Holding | None:
        return self._holdings.get(key)

    def change(self, key: str, device: str, node: str, device_then: int, host_then: int) -> None:
        """Enter a decision: until it is carried out, the larger of old and new counts."""
        old = self._holdings.get(key)
        self._holdings[key] = Holding(
            device=device,
            node=node,
            device_now=max(old.device_now if old else 0, device_then),
            device_then=device_then,
            host_now=max(old.host_now if old else 0, host_then),
            host_then=host_then,
        )

    def reserve(self, deployment: str, device: str, n_bytes: int) -> None:
        self._reserved[deployment, device] = n_bytes

    def release(self, deployment: str, device: str) -> None:
        self._reserved.pop((deployment, device), None)

    def reserved(self, device: str, not_for: str = "") -> int:
        """Bytes kept on a device for others than `not_for`."""
        return sum(b for (owner, on), b in self._reserved.items() if on == device and owner != not_for)

    def capacity(self, device: Device) -> int:
        """What our instances may hold together by the device's own account of itself."""
        return device.usable_bytes

    def unaccounted(self, device: Device) -> int:
        """Bytes that the device says are taken and that neither we nor a known process hold.

        Ours are counted as observed; while something is in progress at the most it may hold, because the device's
        figure and the instance's then come from different moments.
        """
        if device.free_bytes is None:
            return 0
        ours = 0
        for instance in self._cluster.on(device.uuid):
            observed = instance.status.device_bytes if instance.status else 0
            ours += observed if instance.settled else max(observed, self._observed(instance).device_now)
        return max(0, device.memory_bytes - device.free_bytes - ours - device.foreign_bytes)

    def placeable(self, device: Device) -> int:
        """`capacity` less what is unaccounted for: the limit for anything new or larger."""
        return max(0, self.capacity(device) - self.unaccounted(device))

    def room_now(self, device: Device, without: frozenset[str] = frozenset()) -> int:
        """Bytes that something new may take at once (may be negative). Reservations are not in it."""
        return self.placeable(device) - sum(
            h.device_now for k, h in self._holdings.items() if h.device == device.uuid and k not in without
        )

    def room_then(self, device: Device, deployment: str, without: frozenset[str] = frozenset()) -> int:
        """Bytes left once all that was decided is done and other deployments' reservations are honoured."""
        held = sum(h.device_then for k, h in self._holdings.items() if h.device == device.uuid and k not in without)
        return self.placeable(device) - held - self.reserved(device.uuid, not_for=deployment)

    def held_now(self, device: str) -> int:
        return sum(h.device_now for h in self._holdings.values() if h.device == device)

    def held_then(self, device: str, without: frozenset[str] = frozenset()) -> int:
        return sum(h.device_then for k, h in self._holdings.items() if h.device == device and k not in without)

    def host_room_now(self, node: str, without: frozenset[str] = frozenset()) -> int:
        """Host bytes that may be taken at once."""
        return self._host_budget(node) - sum(
            h.host_now for k, h in self._holdings.items() if h.node == node and k not in without
        )

    def host_room_then(self, node: str, without: frozenset[str] = frozenset()) -> int:
        return self._host_budget(node) - sum(
            h.host_then for k, h in self._holdings.items() if h.node == node and k not in without
        )

    def _host_budget(self, node: str) -> int:
        known = self._cluster.nodes.get(node)
        return known.host_memory_bytes if known else 0

    def _observed(self, instance: Instance) -> Holding:
        spec, status = instance.spec, instance.status
        profile = self._cluster.profile(spec.deployment, spec.device)
        held = status.device_bytes if status else 0
        host_held = status.host_bytes if status else 0
        then, host_then = held, host_held
        if going(instance):
            then, host_then = 0, 0
        elif instance.state is InstanceState.FAILED:
            pass  # what is left of it is what is seen
        elif spec.desired is DesiredState.RUNNING:
            then = max(spec.budget_bytes, held) if instance.settled else spec.budget_bytes
            if profile is not None:
                offloaded = host_bytes(profile.footprint, spec.resident_bytes)
                host_then = max(offloaded, host_held) if instance.settled else offloaded
        elif sleeping(instance) and not instance.settled and profile is not None:
            then = asleep_device_bytes(profile.footprint, rung_of(instance))
            host_then = asleep_host_bytes(profile.footprint, rung_of(instance))
        now, host_now = max(held, then), max(host_held, host_then)
        if not instance.settled:
            now = max(now, self._may_hold(instance))
        return Holding(spec.device, spec.node, now, then, host_now, host_then)

    def _may_hold(self, instance: Instance) -> int:
        """Most that an unsettled instance may grow to under the residency and KV budget that are in force."""
        status = instance.status
        if status is None:
            return 0 if going(instance) else instance.spec.budget_bytes
        if status.state in ASLEEP or status.state is InstanceState.FAILED:
            return status.device_bytes
        if going(instance) and status.device_bytes == 0 and status.kv_bytes == 0:
            return 0
        profile = self._cluster.profile(status.deployment, status.device)
        if profile is None:
            return max(status.device_bytes, instance.spec.budget_bytes)
        factor = self.factor(status.deployment, status.device)
        return max(status.device_bytes, device_bytes(profile.footprint, status.resident_bytes, status.kv_bytes, factor))
