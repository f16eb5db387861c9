"""A state of the world in a file, for `estiba plan`: devices, models, what runs and what is asked for.

`examples/plan-state.yaml` shows all of it. A snapshot printed by `estiba status --snapshot` is read, too.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from estiba_operator.api import BadDocuments, load_documents
from estiba_operator.api.complaints import problems_of
from estiba_operator.api.quantity import Bytes
from estiba_operator.api.resource import Part
from estiba_scheduler.domain import (
    Demand,
    Deployment,
    DesiredState,
    Device,
    DeviceKind,
    HostLink,
    Instance,
    InstanceSpec,
    InstanceState,
    InstanceStatus,
    Knot,
    ModelProfile,
    Node,
    ProfileKey,
    Provenance,
    ReloadRung,
    Rung,
    Snapshot,
)
from estiba_scheduler.prediction import ModelFacts, asleep_device_bytes, device_bytes, estimate_profile
from estiba_scheduler.quantities import parse_rate

LARGEST_BYTES = 16 * 1024 * 1024
NODE = "this-machine"
AWAKE = (InstanceState.READY, InstanceState.STARTING, InstanceState.DRAINING)


class BadPlanState(Exception):
    """A state file that can't be used; `str()` has every problem with its path and fix."""


class DeviceState(Part):
    name: str
    memory: Bytes
    link: str | None = Field(default=None, description="rate of the host link, such as 1GiB/s")
    product: str = "cpu"
    kind: DeviceKind = DeviceKind.CPU


class Point(Part):
    resident: float = Field(ge=0, le=1)
    tpot_seconds: float = Field(gt=0)


class ModelState(Part):
    """What is known of a model. Without a curve or a ladder, those are estimated from its size."""

    weights: Bytes
    fixed: Bytes = Field(default=0, description="embeddings, head and norms: never leave the device")
    layers: int = Field(ge=1, le=4096)
    kv_per_token: Bytes
    curve: tuple[Point, ...] = ()
    reload: dict[Rung, float] = Field(default_factory=dict, description="seconds to come back: sleep1, sleep2, cold")


class InstanceEntry(Part):
    deployment: str
    device: str
    state: InstanceState = InstanceState.READY
    resident: float = Field(default=1.0, ge=0, le=1)
    kv: Bytes = 0
    idle_seconds: float = Field(default=0.0, ge=0, description="since its last request")
    state_seconds: float | None = Field(default=None, ge=0, description="in this state; without it, idleSeconds")
    in_flight: int = Field(default=0, ge=0)


class DemandEntry(Part):
    queued: int = Field(default=0, ge=0)
    waiting_seconds: float = Field(default=0.0, ge=0)
    rate_per_second: float = Field(default=0.0, ge=0)


class PlanState(Part):
    devices: tuple[DeviceState, ...] = Field(min_length=1)
    host_memory: Bytes
    deployments: str = Field(description="path of a file of ModelDeployments, from where this file is")
    models: dict[str, ModelState]
    instances: tuple[InstanceEntry, ...] = ()
    demand: dict[str, DemandEntry] = Field(default_factory=dict)


def load_plan_state(file: Path) -> tuple[Snapshot, float]:
    """The snapshot and the moment it is of, in seconds since the epoch. Raises BadPlanState."""
    try:
        if file.stat().st_size > LARGEST_BYTES:
            raise BadPlanState(f"{file}: larger than {LARGEST_BYTES} bytes")
        read = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadPlanState(f"{file}: can't be read as YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(read, dict):
        raise BadPlanState(f"{file}: is not a mapping; examples/plan-state.yaml shows how a state is written")
    if "nodes" in read:
        return _raw_snapshot(file, read)
    try:
        state = PlanState.model_validate(read)
    except ValidationError as error:
        raise BadPlanState("\n".join(f"{file}: {problem}" for problem in problems_of(error, PlanState))) from error
    try:
        documents = load_documents(file.parent / state.deployments)
    except BadDocuments as error:
        raise BadPlanState(str(error)) from error
    return _Reading(file, state, [d.to_deployment() for d in documents], time.time()).snapshot()


def _raw_snapshot(file: Path, read: dict[str, Any]) -> tuple[Snapshot, float]:
    try:
        snapshot = Snapshot.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise BadPlanState(f"{file}: is not a snapshot: {str(error).splitlines()[1:3]}") from error
    return snapshot, max((node.reported_at for node in snapshot.nodes), default=time.time())


class _Reading:
    """From what the file says to the domain; every name must be known."""

    def __init__(self, file: Path, state: PlanState, deployments: list[Deployment], now: float) -> None:
        self._file = file
        self._state = state
        self._now = now
        self._deployments = {d.name: d for d in deployments}
        self._devices = {d.name: self._device(d) for d in state.devices}
        for name in [*state.models, *state.demand, *(i.deployment for i in state.instances)]:
            self._known("deployment", name, self._deployments)
        for name in sorted(set(self._deployments) - set(state.models)):
            raise BadPlanState(f"{file}: models.{name}: is missing; say its weights, layers and kvPerToken")

    def snapshot(self) -> tuple[Snapshot, float]:
        links = tuple(self._link(d) for d in self._state.devices)
        node = Node(
            name=NODE,
            devices=tuple(self._devices.values()),
            links=links,
            host_memory_bytes=self._state.host_memory,
            reported_at=self._now,
        )
        profiles = {
            d.id: {
                device.product: self._profile(d.name, device, node.link_of(device)) for device in self._devices.values()
            }
            for d in self._deployments.values()
        }
        instances = tuple(self._instance(n, entry, profiles) for n, entry in enumerate(self._state.instances))
        snapshot = Snapshot(
            nodes=(node,),
            deployments=tuple(self._deployments.values()),
            instances=instances,
            demand={self._deployments[name].id: self._demand(name, d) for name, d in self._state.demand.items()},
            profiles=profiles,
        )
        return snapshot, self._now

    def _known(self, kind: str, name: str, among: dict[str, Any]) -> None:
        if name not in among:
            there = ", ".join(sorted(among)) or "none"
            raise BadPlanState(f"{self._file}: the {kind} {name!r} is not known; there are: {there}")

    def _device(self, device: DeviceState) -> Device:
        return Device(
            uuid=device.name,
            node=NODE,
            kind=device.kind,
            product=device.product,
            memory_bytes=device.memory,
            host_link=f"link-{device.name}",
        )

    def _link(self, device: DeviceState) -> HostLink:
        try:
            rate = parse_rate(device.link) if device.link else None
        except ValueError as error:
            raise BadPlanState(f"{self._file}: devices.{device.name}.link: {error}") from error
        return HostLink(id=f"link-{device.name}", limit_bytes_per_s=rate)

    def _profile(self, name: str, device: Device, link: HostLink | None) -> ModelProfile:
        model = self._state.models[name]
        layer = (model.weights - model.fixed) // model.layers
        facts = ModelFacts(
            weight_bytes=model.weights,
            fixed_bytes=model.weights - layer * model.layers,
            layer_bytes=(layer,) * model.layers,
            kv_bytes_per_token=model.kv_per_token,
        )
        key = ProfileKey(
            model_digest=name,
            dtype=self._deployments[name].model.dtype,
            engine="torch",
            engine_version="any",
            product=device.product,
        )
        profile = estimate_profile(key, facts, device, link)
        knots = tuple(Knot(resident_fraction=p.resident, tpot_s=p.tpot_seconds) for p in model.curve)
        ladder = tuple(
            ReloadRung(rung=rung, seconds_s=seconds, provenance=Provenance.MEASURED)
            for rung, seconds in model.reload.items()
        )
        changes: dict[str, object] = {}
        if knots:
            changes["sensitivity"] = profile.sensitivity.model_copy(update={"knots": knots})
            changes["measured_at"] = self._now
        if ladder:
            given = {rung.rung for rung in ladder}
            changes["reload"] = (*ladder, *(rung for rung in profile.reload if rung.rung not in given))
        return profile.model_copy(update=changes)

    def _instance(self, number: int, entry: InstanceEntry, profiles: dict[str, dict[str, ModelProfile]]) -> Instance:
        self._known("device", entry.device, self._devices)
        deployment = self._deployments[entry.deployment]
        profile = profiles[deployment.id][self._devices[entry.device].product]
        foot = profile.footprint
        resident = max(foot.fixed_bytes, round(entry.resident * foot.weight_bytes))
        awake = entry.state in AWAKE
        asleep = {InstanceState.ASLEEP1: Rung.SLEEP1, InstanceState.ASLEEP2: Rung.SLEEP2}
        budget = device_bytes(foot, resident, entry.kv)
        held = budget if awake else asleep_device_bytes(foot, asleep.get(entry.state, Rung.COLD))
        desired = DesiredState.RUNNING if awake else DesiredState(entry.state.value)
        name = f"{deployment.name}-{number}"
        seen = self._now - entry.idle_seconds
        since = self._now - (entry.idle_seconds if entry.state_seconds is None else entry.state_seconds)
        return Instance(
            spec=InstanceSpec(
                id=name,
                deployment=deployment.id,
                model=deployment.model,
                served_name=deployment.name,
                node=NODE,
                device=entry.device,
                desired=desired,
                resident_bytes=resident,
                kv_bytes=entry.kv,
                budget_bytes=budget,
                generation=1,
            ),
            status=InstanceStatus(
                id=name,
                deployment=deployment.id,
                node=NODE,
                device=entry.device,
                state=entry.state,
                observed_generation=1,
                settled_generation=0 if entry.state in (InstanceState.STARTING, InstanceState.DRAINING) else 1,
                resident_bytes=resident if awake else 0,
                resident_fraction=resident / foot.weight_bytes if awake else 0.0,
                device_bytes=held,
                kv_bytes=entry.kv if awake else 0,
                in_flight=entry.in_flight,
                first_ready_at=since,
                last_request_at=seen,
                state_since=since,
                reported_at=self._now,
            ),
        )

    def _demand(self, name: str, entry: DemandEntry) -> Demand:
        return Demand(
            deployment=self._deployments[name].id,
            arrival_rate_per_s=entry.rate_per_second,
            queued=entry.queued,
            oldest_queued_at=self._now - entry.waiting_seconds if entry.queued else None,
            last_request_at=self._now - entry.waiting_seconds if entry.queued else None,
            observed_at=self._now,
        )
