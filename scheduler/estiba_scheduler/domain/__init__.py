"""The domain: frozen values with units in their names. Nothing here does I/O."""

from .device import Device, DeviceHealth, DeviceKind, HostLink, LoadPath, Node
from .instance import (
    ASLEEP,
    DesiredState,
    Instance,
    InstanceSpec,
    InstanceState,
    InstanceStatus,
    ProcessIdentity,
)
from .plan import Action, ActionKind, BackOff, Plan, PlannerMemory, Reservation, Snapshot, Verdict
from .profile import (
    Footprint,
    Knot,
    ModelProfile,
    ProfileKey,
    Provenance,
    RejectedKnot,
    ReloadRung,
    Rung,
    Sensitivity,
)
from .reason import Reason
from .value import Value
from .workload import (
    Demand,
    Deployment,
    IdleMode,
    ModelSource,
    Objectives,
    OffloadMode,
    Policies,
    PreemptionMode,
)

__all__ = [
    "ASLEEP",
    "Action",
    "ActionKind",
    "BackOff",
    "Demand",
    "Deployment",
    "DesiredState",
    "Device",
    "DeviceHealth",
    "DeviceKind",
    "Footprint",
    "HostLink",
    "IdleMode",
    "Instance",
    "InstanceSpec",
    "InstanceState",
    "InstanceStatus",
    "Knot",
    "LoadPath",
    "ModelProfile",
    "ModelSource",
    "Node",
    "Objectives",
    "OffloadMode",
    "Plan",
    "PlannerMemory",
    "Policies",
    "PreemptionMode",
    "ProcessIdentity",
    "ProfileKey",
    "Provenance",
    "Reason",
    "RejectedKnot",
    "ReloadRung",
    "Reservation",
    "Rung",
    "Sensitivity",
    "Snapshot",
    "Value",
    "Verdict",
]
