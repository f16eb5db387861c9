"""What `estiba status` shows, computed from what the loop last saw and decided. Every number is the agents' own."""

from __future__ import annotations

from pydantic import Field

from estiba_scheduler.domain import (
    ASLEEP,
    Deployment,
    Device,
    Instance,
    InstanceSpec,
    InstanceState,
    InstanceStatus,
    ModelProfile,
    Plan,
    Provenance,
    Reason,
    Rung,
    Snapshot,
    Value,
)
from estiba_scheduler.planning.standing import idle_after_s
from estiba_scheduler.prediction import wake_s

ABSENT = "Absent"

FOREMOST = (
    InstanceState.READY,
    InstanceState.DRAINING,
    InstanceState.STARTING,
    InstanceState.PENDING,
    InstanceState.ASLEEP1,
    InstanceState.ASLEEP2,
    InstanceState.FAILED,
    InstanceState.EVICTED,
)
"""Of several instances, the one in the earliest of these states stands for the model."""


class ModelStanding(Value):
    id: str = Field(description="namespace/name")
    name: str
    uri: str
    digest: str | None = None
    dtype: str
    priority: int
    state: str = Field(description="of its foremost instance; Absent: none")
    device: str | None = None
    resident_fraction: float | None = None
    tpot_s: float | None = Field(default=None, description="seen lately")
    predicted_tpot_s: float | None = None
    wake_s: float | None = Field(
        default=None, description="predicted seconds to serve again from where it is, or would go"
    )
    idle_after_s: float | None = Field(default=None, description="it is put away after so long without a request")
    queued: int = 0
    in_flight: int = 0
    requests_total: int = 0
    profile: Provenance | None = Field(default=None, description="where the numbers about it come from")
    reason: str
    message: str


class InstanceStanding(Value):
    spec: InstanceSpec
    status: InstanceStatus | None = None
    priority: int = 0
    wake_s: float | None = Field(
        default=None, description="predicted seconds to come back; while awake: from sleep level 1"
    )


class JobStanding(Value):
    """A profiling job."""

    deployment: str
    device: str
    state: str
    done: int = 0
    total: int = 0
    note: str = ""
    error: str | None = None


class StatusView(Value):
    at: float
    policy: str
    models: tuple[ModelStanding, ...] = ()
    instances: tuple[InstanceStanding, ...] = ()
    devices: tuple[Device, ...] = ()
    profiles: tuple[ModelProfile, ...] = ()
    jobs: tuple[JobStanding, ...] = ()
    gateway_url: str | None = None
    agent_url: str | None = None
    problems: tuple[str, ...] = Field(
        default=(), description="what is not as it should be: an absent Redis, agent, ..."
    )


def status_view(
    snapshot: Snapshot,
    plan: Plan,
    *,
    at: float,
    policy: str,
    jobs: tuple[JobStanding, ...] = (),
    gateway_url: str | None = None,
    problems: tuple[str, ...] = (),
) -> StatusView:
    devices = tuple(device for node in snapshot.nodes for device in node.devices)
    products = {device.uuid: device.product for device in devices}
    deployments = {deployment.id: deployment for deployment in snapshot.deployments}
    profiles = {str(profile.key): profile for of_one in snapshot.profiles.values() for profile in of_one.values()}
    return StatusView(
        at=at,
        policy=policy,
        models=tuple(_model(snapshot, plan, deployment, products) for deployment in snapshot.deployments),
        instances=tuple(
            InstanceStanding(
                spec=instance.spec,
                status=instance.status,
                priority=deployments[instance.spec.deployment].priority
                if instance.spec.deployment in deployments
                else 0,
                wake_s=_wake_s(instance, _profile(snapshot, instance, products)),
            )
            for instance in snapshot.instances
        ),
        devices=devices,
        profiles=tuple(profiles[key] for key in sorted(profiles)),
        jobs=jobs,
        gateway_url=gateway_url,
        agent_url=next((node.agent_url for node in snapshot.nodes if node.agent_url), None),
        problems=problems,
    )


def _model(snapshot: Snapshot, plan: Plan, deployment: Deployment, products: dict[str, str]) -> ModelStanding:
    instances = [i for i in snapshot.instances if i.spec.deployment == deployment.id]
    foremost = min(instances, key=lambda i: (FOREMOST.index(i.state), i.id), default=None)
    status = foremost.status if foremost else None
    verdict = next((v for v in plan.verdicts if v.deployment == deployment.id), None)
    demand = snapshot.demand.get(deployment.id)
    of_it = snapshot.profiles.get(deployment.id, {})
    profile = _profile(snapshot, foremost, products) if foremost else next(iter(of_it.values()), None)
    awake = foremost is not None and foremost.state in (InstanceState.READY, InstanceState.DRAINING)
    back_s = _wake_s(foremost, profile)
    return ModelStanding(
        id=deployment.id,
        name=deployment.name,
        uri=deployment.model.uri,
        digest=deployment.model.digest,
        dtype=profile.key.dtype if profile else deployment.model.dtype,
        priority=deployment.priority,
        state=foremost.state.value if foremost else ABSENT,
        device=foremost.spec.device if foremost else None,
        resident_fraction=status.resident_fraction if status and awake else None,
        tpot_s=status.tpot_s if status else None,
        predicted_tpot_s=verdict.predicted_tpot_s if verdict else None,
        wake_s=back_s if back_s is not None else (verdict.wake_s if verdict else None),
        idle_after_s=None if deployment.min_replicas else idle_after_s(deployment, profile),
        queued=demand.queued if demand else 0,
        in_flight=max(demand.in_flight if demand else 0, sum(i.status.in_flight for i in instances if i.status)),
        requests_total=demand.requests_total if demand else 0,
        profile=_provenance(profile),
        reason=str(verdict.reason) if verdict else str(Reason.UNPROFILED),
        message=verdict.message if verdict else "nothing was decided about it yet",
    )


def _profile(snapshot: Snapshot, instance: Instance, products: dict[str, str]) -> ModelProfile | None:
    return snapshot.profiles.get(instance.spec.deployment, {}).get(products.get(instance.spec.device, ""))


def _provenance(profile: ModelProfile | None) -> Provenance | None:
    if profile is None:
        return None
    return Provenance.MEASURED if profile.measured_at else Provenance.ESTIMATED


def _wake_s(instance: Instance | None, profile: ModelProfile | None) -> float | None:
    if profile is None:
        return None
    if instance is None or instance.state in (InstanceState.FAILED, InstanceState.EVICTED):
        return wake_s(profile, Rung.COLD)
    if instance.state in ASLEEP:
        return wake_s(profile, Rung.SLEEP1 if instance.state is InstanceState.ASLEEP1 else Rung.SLEEP2)
    return wake_s(profile, Rung.SLEEP1)
