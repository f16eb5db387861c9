"""A double of nodes and agents for planner tests: does at once, or after the profiled seconds, what it is told.

It is not a model of performance. It drives `plan` through time on a virtual clock, holds what each instance would
hold (in a transition the larger of old and new), and fails the moment a device or a host is over its budget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from estiba_scheduler.domain import (
    Action,
    ActionKind,
    Demand,
    Deployment,
    DesiredState,
    Instance,
    InstanceSpec,
    InstanceState,
    InstanceStatus,
    ModelProfile,
    Node,
    Plan,
    PlannerMemory,
    Rung,
    Snapshot,
)
from estiba_scheduler.planning import plan
from estiba_scheduler.prediction import (
    asleep_device_bytes,
    asleep_host_bytes,
    host_bytes,
    predict_tpot_s,
    unload_s,
    wake_s,
)

from .builders import NOW, PRODUCT, a_profile

RESIZE_S = 0.3


@dataclass
class Request:
    deployment: str
    at: float
    tokens: int = 16
    started_at: float | None = None
    done_at: float | None = None


@dataclass
class Engine:
    """One instance as the double keeps it."""

    spec: InstanceSpec
    state: InstanceState
    device_bytes: int = 0
    host_bytes: int = 0
    resident_bytes: int = 0
    kv_bytes: int = 0
    settled: int = 0
    since: float = 0.0
    first_ready_at: float | None = None
    last_request_at: float | None = None
    ends_at: float | None = None  # of the transition going on
    actuate: Callable[[], None] | None = None


@dataclass
class ObedientCluster:
    nodes: Sequence[Node]
    deployments: list[Deployment]
    profiles: dict[str, ModelProfile] = field(default_factory=dict)
    now: float = NOW
    step_s: float = 0.25
    decide: Callable[[Snapshot, float], Plan] = plan

    def __post_init__(self) -> None:
        self.profiles = {d.id: self.profiles.get(d.name) or a_profile(d.name) for d in self.deployments}
        self.engines: dict[str, Engine] = {}
        self.requests: list[Request] = []
        self.memory = PlannerMemory()
        self.actions: list[tuple[float, Action]] = []
        self.last_plan: Plan = Plan()
        self._count = 0

    # -- driving ------------------------------------------------------------------------------------------------

    def request(self, name: str, after_s: float = 0.0, tokens: int = 16) -> Request:
        made = Request(f"default/{name}", self.now + after_s, tokens)
        self.requests.append(made)
        return made

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.tick()
            self.now += self.step_s

    def tick(self) -> Plan:
        for engine in list(self.engines.values()):
            self._progress(engine)
        self._serve()
        self.last_plan = self.decide(self.snapshot(), self.now)
        self.memory = self.last_plan.memory
        for action in self.last_plan.actions:
            self.actions.append((self.now, action))
            self._obey(action)
        self._within_budgets()
        return self.last_plan

    @property
    def story(self) -> str:
        return "\n".join(f"{at - NOW:7.2f} {a.kind:7} {a.deployment}: {a.message}" for at, a in self.actions)

    def kinds(self, *wanted: ActionKind) -> list[tuple[float, Action]]:
        return [(at, a) for at, a in self.actions if a.kind in wanted]

    def state(self, name: str) -> InstanceState | None:
        found = [e.state for e in self.engines.values() if e.spec.deployment == f"default/{name}"]
        return found[0] if found else None

    # -- observing ----------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        return Snapshot(
            nodes=tuple(n.model_copy(update={"reported_at": self.now}) for n in self.nodes),
            deployments=tuple(self.deployments),
            instances=tuple(Instance(spec=e.spec, status=self._status(e)) for e in self.engines.values()),
            demand={d.id: self._demand(d.id) for d in self.deployments},
            profiles={d.id: {PRODUCT: self.profiles[d.id]} for d in self.deployments},
            memory=self.memory,
        )

    def _status(self, e: Engine) -> InstanceStatus:
        running = sum(1 for r in self._running(e.spec.deployment)) if e.state is InstanceState.READY else 0
        if e.state is InstanceState.DRAINING:
            running = len(self._running(e.spec.deployment))
        weights = self.profiles[e.spec.deployment].footprint.weight_bytes
        return InstanceStatus(
            id=e.spec.id,
            deployment=e.spec.deployment,
            node=e.spec.node,
            device=e.spec.device,
            state=e.state,
            observed_generation=e.spec.generation,
            settled_generation=e.settled,
            resident_bytes=e.resident_bytes,
            resident_fraction=e.resident_bytes / weights,
            device_bytes=e.device_bytes,
            host_bytes=e.host_bytes,
            kv_bytes=e.kv_bytes,
            in_flight=running,
            first_ready_at=e.first_ready_at,
            last_request_at=e.last_request_at,
            state_since=e.since,
            reported_at=self.now,
        )

    def _demand(self, deployment: str) -> Demand:
        arrived = [r for r in self.requests if r.deployment == deployment and r.at <= self.now]
        queued = [r for r in arrived if r.started_at is None]
        return Demand(
            deployment=deployment,
            arrival_rate_per_s=sum(1 for r in arrived if r.at > self.now - 60) / 60,
            queued=len(queued),
            oldest_queued_at=min((r.at for r in queued), default=None),
            in_flight=len(self._running(deployment)),
            last_request_at=max((r.at for r in arrived), default=None),
            requests_total=len(arrived),
            output_tokens_mean=16,
            observed_at=self.now,
        )

    def _running(self, deployment: str) -> list[Request]:
        return [
            r
            for r in self.requests
            if r.deployment == deployment
            and r.started_at is not None
            and r.done_at is not None
            and r.started_at <= self.now < r.done_at
        ]

    # -- obeying ------------------------------------------------------------------------------------------------

    def _obey(self, action: Action) -> None:
        if action.kind is ActionKind.START:
            self._start(action)
            return
        assert action.instance is not None
        engine = self.engines[action.instance]
        assert action.expected_generation == engine.spec.generation, "fenced: planned on an old generation"
        deployment = action.deployment
        profile = self.profiles[deployment]
        foot = profile.footprint
        if action.kind is ActionKind.RESIZE:
            self._respec(engine, action, DesiredState.RUNNING)
            self._run_to(engine, RESIZE_S, foot_host=host_bytes(foot, action.resident_bytes), action=action)
        elif action.kind is ActionKind.WAKE:
            rung = Rung.SLEEP1 if engine.state is InstanceState.ASLEEP1 else Rung.SLEEP2
            revived = engine.state in (InstanceState.READY, InstanceState.DRAINING)
            self._respec(engine, action, DesiredState.RUNNING)
            self._to(engine, InstanceState.READY if revived else InstanceState.STARTING)
            seconds = RESIZE_S if revived else wake_s(profile, rung)
            self._run_to(engine, seconds, foot_host=host_bytes(foot, action.resident_bytes), action=action)
        else:
            desired, rung = {
                1: (DesiredState.ASLEEP1, Rung.SLEEP1),
                2: (DesiredState.ASLEEP2, Rung.SLEEP2),
                None: (DesiredState.EVICTED, Rung.COLD),
            }[action.level]
            self._respec(engine, action, desired)
            self._to(engine, InstanceState.DRAINING)
            end = InstanceState(desired.value)
            engine.actuate = lambda: self._away(engine, rung, end)
            engine.ends_at = None

    def _start(self, action: Action) -> None:
        self._count += 1
        deployment = next(d for d in self.deployments if d.id == action.deployment)
        spec = InstanceSpec(
            id=f"{deployment.name}-{self._count}",
            deployment=deployment.id,
            model=deployment.model,
            served_name=deployment.name,
            node=action.node,
            device=action.device,
            resident_bytes=action.resident_bytes,
            kv_bytes=action.kv_bytes,
            budget_bytes=action.budget_bytes,
            start_deadline_s=action.start_deadline_s,
            generation=1,
        )
        engine = Engine(spec, InstanceState.STARTING, since=self.now)
        self.engines[spec.id] = engine
        profile = self.profiles[deployment.id]
        host = host_bytes(profile.footprint, action.resident_bytes)
        self._run_to(engine, wake_s(profile, Rung.COLD), foot_host=host, action=action)

    def _respec(self, engine: Engine, action: Action, desired: DesiredState) -> None:
        changes: dict[str, object] = {"desired": desired, "generation": engine.spec.generation + 1}
        if desired is DesiredState.RUNNING:
            changes |= {
                "resident_bytes": action.resident_bytes,
                "kv_bytes": action.kv_bytes,
                "budget_bytes": action.budget_bytes,
            }
        engine.spec = engine.spec.model_copy(update=changes)
        engine.actuate = None

    def _run_to(self, engine: Engine, seconds: float, foot_host: int, action: Action) -> None:
        engine.device_bytes = max(engine.device_bytes, action.budget_bytes)
        engine.host_bytes = max(engine.host_bytes, foot_host)

        def done() -> None:
            engine.device_bytes, engine.host_bytes = action.budget_bytes, foot_host
            engine.resident_bytes, engine.kv_bytes = action.resident_bytes, action.kv_bytes
            if engine.state is not InstanceState.READY:
                self._to(engine, InstanceState.READY)
            engine.first_ready_at = engine.first_ready_at or self.now
            engine.settled = engine.spec.generation

        engine.ends_at, engine.actuate = self.now + seconds, done

    def _away(self, engine: Engine, rung: Rung, end: InstanceState) -> None:
        profile = self.profiles[engine.spec.deployment]
        if engine.ends_at is None:  # drained: now the weights move
            engine.host_bytes = max(engine.host_bytes, asleep_host_bytes(profile.footprint, rung))
            engine.ends_at = self.now + unload_s(profile, rung)
            engine.actuate = lambda: self._away(engine, rung, end)
            return
        engine.device_bytes = asleep_device_bytes(profile.footprint, rung)
        engine.host_bytes = asleep_host_bytes(profile.footprint, rung)
        engine.resident_bytes = engine.kv_bytes = 0
        engine.settled = engine.spec.generation
        self._to(engine, end)
        if end is InstanceState.EVICTED:
            del self.engines[engine.spec.id]

    def _to(self, engine: Engine, state: InstanceState) -> None:
        engine.state, engine.since = state, self.now

    def _progress(self, engine: Engine) -> None:
        if engine.actuate is None:
            return
        if engine.ends_at is None:
            if not self._running(engine.spec.deployment):
                engine.actuate()
        elif self.now >= engine.ends_at:
            actuate, engine.actuate = engine.actuate, None
            actuate()

    def _serve(self) -> None:
        for request in self.requests:
            if request.started_at is not None or request.at > self.now:
                continue
            ready = [
                e
                for e in self.engines.values()
                if e.spec.deployment == request.deployment and e.state is InstanceState.READY
            ]
            if ready:
                step = predict_tpot_s(self.profiles[request.deployment], ready[0].resident_bytes).tpot_s
                request.started_at, request.done_at = self.now, self.now + request.tokens * step
                ready[0].last_request_at = self.now

    def _within_budgets(self) -> None:
        for node in self.nodes:
            host = sum(e.host_bytes for e in self.engines.values() if e.spec.node == node.name)
            assert host <= node.host_memory_bytes, (
                f"host of {node.name} over by {host - node.host_memory_bytes}\n{self.story}"
            )
            for device in node.devices:
                held = sum(e.device_bytes for e in self.engines.values() if e.spec.device == device.uuid)
                assert held <= device.usable_bytes, f"{device.uuid} over by {held - device.usable_bytes}\n{self.story}"
