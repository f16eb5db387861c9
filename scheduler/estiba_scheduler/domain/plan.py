"""What goes into and comes out of one planning pass."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from .device import Node
from .instance import Instance
from .profile import ModelProfile
from .reason import Reason
from .value import Value
from .workload import Demand, Deployment


class ActionKind(StrEnum):
    START = "Start"
    RESIZE = "Resize"
    SLEEP = "Sleep"
    WAKE = "Wake"
    EVICT = "Evict"
    MIGRATE = "Migrate"


class Action(Value):
    """One thing to do. `instance` is None only for Start (the actor gives the new instance its id)."""

    kind: ActionKind
    deployment: str
    instance: str | None = None
    node: str = ""
    device: str = ""
    level: int | None = Field(default=None, description="Sleep: 1 or 2")
    resident_bytes: int = 0
    kv_bytes: int = 0
    budget_bytes: int = 0
    start_deadline_s: float = 300.0
    expected_generation: int | None = Field(default=None, description="fence: the instance's generation planned on")
    beneficiary: str | None = Field(default=None, description="deployment that the freed room is for")
    reason: Reason
    message: str = Field(description="a sentence for a person, with the numbers that decided")
    numbers: dict[str, float] = Field(default_factory=dict)


class Verdict(Value):
    """How one deployment stands after this pass, and why."""

    deployment: str
    reason: Reason
    message: str
    numbers: dict[str, float] = Field(default_factory=dict)
    predicted_tpot_s: float | None = None
    wake_s: float | None = Field(default=None, description="predicted seconds to serve, if put away or absent")


class Reservation(Value):
    """Device bytes being freed for one deployment; nobody else may take them until it expires."""

    deployment: str
    device: str
    bytes: int = Field(ge=0)
    expires_at: float


class BackOff(Value):
    deployment: str
    failures: int = Field(ge=1)
    retry_at: float


class PlannerMemory(Value):
    """What one pass hands to the next. Everything else is observed anew. Losing it costs one reservation period."""

    reservations: tuple[Reservation, ...] = ()
    back_offs: tuple[BackOff, ...] = ()
    last_switch_at: dict[str, float] = Field(
        default_factory=dict, description="deployment -> last start, wake or sleep"
    )
    last_resize_at: dict[str, float] = Field(default_factory=dict, description="device -> last Resize on it")
    last_busy_at: dict[str, float] = Field(
        default_factory=dict, description="deployment -> when it was last seen with a request queued or running"
    )
    footprint_factor: dict[str, float] = Field(
        default_factory=dict, description="profile key -> factor on predicted bytes after an out-of-memory"
    )


class Snapshot(Value):
    """Everything a decision may rest on."""

    nodes: tuple[Node, ...] = ()
    deployments: tuple[Deployment, ...] = ()
    instances: tuple[Instance, ...] = ()
    demand: dict[str, Demand] = Field(default_factory=dict, description="by deployment id")
    profiles: dict[str, dict[str, ModelProfile]] = Field(
        default_factory=dict, description="deployment id -> device product -> profile (measured or estimated)"
    )
    profiling: frozenset[str] = Field(default=frozenset(), description="deployments being measured now")
    memory: PlannerMemory = PlannerMemory()
    heartbeat_ttl_s: float = 15.0


class Plan(Value):
    actions: tuple[Action, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    memory: PlannerMemory = PlannerMemory()
    next_pass_s: float | None = Field(
        default=None, description="a decision is due by then at the latest (idle time, ...)"
    )
