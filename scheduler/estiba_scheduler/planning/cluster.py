"""The snapshot, indexed and in a stable order, so that nothing below depends on the order of its lists."""

from __future__ import annotations

from ..domain import (
    ASLEEP,
    Demand,
    Deployment,
    DesiredState,
    Device,
    DeviceHealth,
    Instance,
    InstanceState,
    ModelProfile,
    Node,
    Rung,
    Snapshot,
)
from ..prediction import DecodeCurve


class Cluster:
    """Read-only view of one snapshot."""

    def __init__(self, snapshot: Snapshot, now: float) -> None:
        self.snapshot = snapshot
        self.now = now
        self.nodes: dict[str, Node] = {n.name: n for n in sorted(snapshot.nodes, key=lambda n: n.name)}
        devices = sorted((d for n in self.nodes.values() for d in n.devices), key=lambda d: d.uuid)
        self.devices: dict[str, Device] = {d.uuid: d for d in devices}
        self.deployments: dict[str, Deployment] = {d.id: d for d in sorted(snapshot.deployments, key=lambda d: d.id)}
        # What is evicted and gone holds nothing and is only reported once more.
        present = [i for i in snapshot.instances if i.state is not InstanceState.EVICTED]
        self.instances: tuple[Instance, ...] = tuple(sorted(present, key=lambda i: i.id))
        self._curves: dict[tuple[str, str], DecodeCurve] = {}

    def of(self, deployment: str) -> tuple[Instance, ...]:
        return tuple(i for i in self.instances if i.spec.deployment == deployment)

    def on(self, device: str) -> tuple[Instance, ...]:
        return tuple(i for i in self.instances if i.spec.device == device)

    def demand(self, deployment: str) -> Demand:
        return self.snapshot.demand.get(deployment) or Demand(deployment=deployment)

    def profile(self, deployment: str, device: str) -> ModelProfile | None:
        """The profile for this deployment on this device's product."""
        known = self.devices.get(device)
        return self.snapshot.profiles.get(deployment, {}).get(known.product) if known else None

    def any_profile(self, deployment: str) -> ModelProfile | None:
        """Some profile, where only the order of magnitude matters; the first product by name."""
        profiles = self.snapshot.profiles.get(deployment, {})
        return profiles[min(profiles)] if profiles else None

    def curve(self, deployment: str, device: str) -> DecodeCurve | None:
        profile = self.profile(deployment, device)
        if profile is None:
            return None
        key = (deployment, self.devices[device].product)
        if key not in self._curves:
            self._curves[key] = DecodeCurve(profile)
        return self._curves[key]

    def reachable(self, node: str) -> bool:
        """The node's agent has reported within the heartbeat's time to live."""
        known = self.nodes.get(node)
        return known is not None and self.now - known.reported_at <= self.snapshot.heartbeat_ttl_s

    def takes_placements(self, device: Device) -> bool:
        return device.health is DeviceHealth.HEALTHY and self.reachable(device.node)

    def commandable(self, instance: Instance) -> bool:
        """Its agent can be told something: it is there, and its device is known."""
        return self.reachable(instance.spec.node)


def going(instance: Instance) -> bool:
    """On its way out for good."""
    return instance.spec.desired is DesiredState.EVICTED


def failed(instance: Instance) -> bool:
    return not going(instance) and instance.state is InstanceState.FAILED


def up(instance: Instance) -> bool:
    """Serving, or on its way to serve."""
    return instance.spec.desired is DesiredState.RUNNING and instance.state is not InstanceState.FAILED


def sleeping(instance: Instance) -> bool:
    """Asleep, or on its way to sleep."""
    asleep = instance.spec.desired in (DesiredState.ASLEEP1, DesiredState.ASLEEP2)
    return asleep and instance.state is not InstanceState.FAILED


def serving(instance: Instance) -> bool:
    """Up, ready, and nothing about it is in progress."""
    return up(instance) and instance.settled and instance.state is InstanceState.READY


def rung_of(instance: Instance) -> Rung:
    """The rung that a sleeping instance is on, or going to."""
    if instance.state in ASLEEP:
        return Rung.SLEEP1 if instance.state is InstanceState.ASLEEP1 else Rung.SLEEP2
    return Rung.SLEEP1 if instance.spec.desired is DesiredState.ASLEEP1 else Rung.SLEEP2
