"""Values for tests, with defaults that make sense together: a small cpu node and a model of 500 MiB on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from estiba_scheduler.domain import (
    Demand,
    Deployment,
    DesiredState,
    Device,
    DeviceKind,
    Footprint,
    HostLink,
    Instance,
    InstanceSpec,
    InstanceState,
    InstanceStatus,
    Knot,
    ModelProfile,
    ModelSource,
    Node,
    PlannerMemory,
    Policies,
    ProfileKey,
    ReloadRung,
    Rung,
    Sensitivity,
    Snapshot,
)
from estiba_scheduler.prediction import device_bytes, host_bytes
from estiba_scheduler.prediction.streaming import step_s

MIB = 1024**2
GIB = 1024**3
NOW = 1_000_000.0
PRODUCT = "cpu-test"


def a_device(uuid: str = "cpu-0", memory_mib: int = 700, **changes: Any) -> Device:
    fields: dict[str, Any] = {
        "uuid": uuid,
        "node": "n1",
        "kind": DeviceKind.CPU,
        "product": PRODUCT,
        "memory_bytes": memory_mib * MIB,
        "host_link": "link-0",
    }
    return Device(**fields | changes)


def a_node(
    devices: Sequence[Device] | None = None, host_mib: int = 8192, link_mib_s: float = 1024, **changes: Any
) -> Node:
    devices = [a_device()] if devices is None else devices
    name = changes.pop("name", "n1")
    fields: dict[str, Any] = {
        "name": name,
        "devices": tuple(d.model_copy(update={"node": name}) for d in devices),
        "links": (HostLink(id="link-0", h2d_bytes_per_s=link_mib_s * MIB),),
        "host_memory_bytes": host_mib * MIB,
        "reported_at": NOW,
    }
    return Node(**fields | changes)


def a_model(name: str = "m", **changes: Any) -> ModelSource:
    fields: dict[str, Any] = {"uri": f"file:///models/{name}", "context_tokens": 512, "max_batch": 4}
    return ModelSource(**fields | changes)


def a_deployment(name: str = "a", **changes: Any) -> Deployment:
    """A deployment; `policies` may be given as a dict."""
    if isinstance(changes.get("policies"), dict):
        changes["policies"] = Policies(**changes["policies"])
    fields: dict[str, Any] = {"name": name, "model": a_model(name), "created_at": NOW - 1000}
    return Deployment(**fields | changes)


def a_footprint(
    weight_mib: int = 500, fixed_mib: int = 100, layers: int = 10, kv_kib_per_token: int = 16, **changes: Any
) -> Footprint:
    layer = (weight_mib - fixed_mib) * MIB // layers
    fields: dict[str, Any] = {
        "weight_bytes": weight_mib * MIB,
        "fixed_bytes": weight_mib * MIB - layer * layers,
        "layer_bytes": (layer,) * layers,
        "kv_bytes_per_token": kv_kib_per_token * 1024,
        "activation_bytes": 2 * MIB,
        "overhead_bytes": 1 * MIB,
        "stream_buffer_bytes": 2 * layer,
        "sleep1_host_bytes": weight_mib * MIB,
    }
    return Footprint(**fields | changes)


def a_profile(
    name: str = "a",
    footprint: Footprint | None = None,
    compute_s: float = 0.05,
    link_mib_s: float = 1024,
    fractions: Sequence[float] = (1.0, 0.8, 0.6, 0.4, 0.2),
    ladder: dict[str, tuple[float, float]] | None = None,
    **changes: Any,
) -> ModelProfile:
    """A profile whose knots lie on the streaming model; `ladder` is rung -> (wake seconds, unload seconds)."""
    foot = footprint or a_footprint()
    knots = tuple(
        Knot(
            resident_fraction=f,
            tpot_s=step_s(compute_s, (1 - f) * foot.weight_bytes, link_mib_s * MIB),
            spread_s=0.001,
            samples=8,
        )
        for f in fractions
    )
    rungs = ladder or {"sleep1": (0.4, 0.2), "sleep2": (1.0, 0.1), "cold": (4.0, 0.3)}
    fields: dict[str, Any] = {
        "key": ProfileKey(model_digest=name, dtype="float32", engine="torch", engine_version="1", product=PRODUCT),
        "footprint": foot,
        "sensitivity": Sensitivity(knots=knots, link_bytes_per_s=link_mib_s * MIB),
        "reload": tuple(
            ReloadRung(rung=Rung(rung), seconds_s=wake, unload_s=unload, samples=3)
            for rung, (wake, unload) in rungs.items()
        ),
        "measured_at": NOW - 500,
        "measured_on": "n1",
    }
    return ModelProfile(**fields | changes)


def a_demand(name: str = "a", **changes: Any) -> Demand:
    """Demand of `default/<name>`; `waits` is how long the oldest of its queued requests has waited."""
    waits = changes.pop("waits", None)
    if waits is not None:
        changes = {"queued": 1, "oldest_queued_at": NOW - waits, "last_request_at": NOW - waits} | changes
    return Demand(**{"deployment": f"default/{name}", "observed_at": NOW} | changes)


def an_instance(
    name: str = "a",
    state: InstanceState = InstanceState.READY,
    profile: ModelProfile | None = None,
    resident_mib: int | None = None,
    kv_mib: int = 16,
    device: str = "cpu-0",
    **changes: Any,
) -> Instance:
    """A settled instance of `default/<name>` in this state, holding what such an instance holds.

    `changes` go to the spec or the status, wherever the field belongs (`spec_...` for a field of both).
    """
    foot = (profile or a_profile(name)).footprint
    resident = foot.weight_bytes if resident_mib is None else resident_mib * MIB
    asleep1, asleep2 = state is InstanceState.ASLEEP1, state is InstanceState.ASLEEP2
    budget = device_bytes(foot, resident, kv_mib * MIB)
    here = state not in (InstanceState.FAILED, InstanceState.EVICTED, InstanceState.PENDING)
    desired = {
        InstanceState.ASLEEP1: DesiredState.ASLEEP1,
        InstanceState.ASLEEP2: DesiredState.ASLEEP2,
        InstanceState.EVICTED: DesiredState.EVICTED,
    }.get(state, DesiredState.RUNNING)
    held = budget if here else 0
    host = host_bytes(foot, resident) if here else 0
    if asleep1:
        held, host = foot.sleep1_device_bytes, foot.sleep1_host_bytes
    if asleep2:
        held, host = foot.sleep2_device_bytes, foot.sleep2_host_bytes
    spec: dict[str, Any] = {
        "id": f"{name}-1",
        "deployment": f"default/{name}",
        "model": a_model(name),
        "served_name": name,
        "node": "n1",
        "device": device,
        "desired": desired,
        "resident_bytes": resident,
        "kv_bytes": kv_mib * MIB,
        "budget_bytes": budget,
        "generation": 3,
    }
    shown = resident if here and not (asleep1 or asleep2) else 0
    status: dict[str, Any] = {
        "state": state,
        "observed_generation": 3,
        "settled_generation": 3,
        "resident_bytes": shown,
        "resident_fraction": shown / foot.weight_bytes,
        "device_bytes": held,
        "host_bytes": host,
        "kv_bytes": kv_mib * MIB if here and not (asleep1 or asleep2) else 0,
        "first_ready_at": NOW - 300,
        "state_since": NOW - 300,
        "reported_at": NOW,
    }
    for field, value in changes.items():
        plain = field.removeprefix("spec_")
        if field != plain or plain in InstanceSpec.model_fields:
            spec[plain] = value
        if field == plain and (plain in InstanceStatus.model_fields):
            status[plain] = value
    status |= {k: spec[k] for k in ("id", "deployment", "node", "device")}
    return Instance(spec=InstanceSpec(**spec), status=InstanceStatus(**status))


def a_snapshot(
    deployments: Sequence[Deployment] = (),
    instances: Sequence[Instance] = (),
    demand: Sequence[Demand] = (),
    profiles: dict[str, ModelProfile] | None = None,
    nodes: Sequence[Node] | None = None,
    memory: PlannerMemory | None = None,
    **changes: Any,
) -> Snapshot:
    """A snapshot; every deployment without a profile given (by name) has the default one."""
    given = profiles or {}
    known = {d.id: {PRODUCT: given.get(d.name) or a_profile(d.name)} for d in deployments}
    return Snapshot(
        nodes=tuple([a_node()] if nodes is None else nodes),
        deployments=tuple(deployments),
        instances=tuple(instances),
        demand={d.deployment: d for d in demand},
        profiles={k: v for k, v in known.items() if k not in changes.pop("without_profile", ())},
        memory=memory or PlannerMemory(),
        **changes,
    )
