"""Every reason a decision or a state may carry. Stable: users and dashboards match on them."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    # why something is done
    DEMAND = "Demand"  # requests wait, or came lately
    MIN_REPLICAS = "MinReplicas"
    IDLE = "Idle"  # no request for longer than the idle time
    PREEMPTED = "Preempted"  # yields to a more valuable deployment
    SHRUNK = "Shrunk"  # gives resident bytes to where they buy more
    GROWN = "Grown"  # room came free
    DELETED = "Deleted"
    OUT_OF_MEMORY = "OutOfMemory"  # estimate raised, tried once more
    ESCALATED = "Escalated"  # a cheaper rung failed
    HOST_MEMORY = "HostMemory"  # host budget leaves no room for this rung
    DEVICE_UNHEALTHY = "DeviceUnhealthy"
    # why something is not done
    WAITING_FOR_ROOM = "WaitingForRoom"  # room is being freed and is reserved for it
    QUANTUM = "MinimumResidency"  # the victims have not yet paid for their own switch
    INSUFFICIENT_MEMORY = "InsufficientDeviceMemory"
    INSUFFICIENT_HOST_MEMORY = "InsufficientHostMemory"
    ALL_PINNED = "PinnedModelsHoldTheDevice"
    NO_DEVICE = "NoMatchingDevice"
    UNPROFILED = "Unprofiled"
    PROFILING = "Profiling"
    BACK_OFF = "BackOff"
    LOWER_PRIORITY = "LowerPriority"
    NO_DEMAND = "NoDemand"
    INVALID = "Invalid"
    # how an instance is
    STARTED = "Started"
    SERVING = "Serving"
    ASLEEP = "Asleep"
    OFFLOAD_INEFFECTIVE = "OffloadIneffective"
    START_TIMEOUT = "StartTimeout"
    ENGINE_EXITED = "EngineExited"
    ENGINE_UNRESPONSIVE = "EngineUnresponsive"
    IDENTITY_MISMATCH = "IdentityMismatch"
    BAD_MODEL = "BadModel"
    DEVICE_MEMORY_LEAKED = "DeviceMemoryLeaked"
    STALE_GENERATION = "StaleGeneration"
    DRAIN_TIMEOUT = "DrainTimeout"
    STOPPED = "Stopped"
    STORE_UNREACHABLE = "StoreUnreachable"
