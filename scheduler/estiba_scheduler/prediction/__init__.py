"""Predictions from profiles: decode time, memory, reload cost. Pure functions of values."""

from .decode import DecodeCurve, Prediction, fully_resident_tpot_s, predict_tpot_s, slowdown
from .estimate import ModelFacts, estimate_profile, kv_bytes_per_token
from .memory import (
    asleep_device_bytes,
    asleep_host_bytes,
    device_bytes,
    host_bytes,
    kv_minimum_bytes,
    kv_wanted_bytes,
    resident_levels,
    smallest_device_bytes,
)
from .reload import Cost, idle_s, quantum_s, start_deadline_s, switch_s, unload_s, wake, wake_s

__all__ = [
    "Cost",
    "DecodeCurve",
    "ModelFacts",
    "Prediction",
    "asleep_device_bytes",
    "asleep_host_bytes",
    "device_bytes",
    "estimate_profile",
    "fully_resident_tpot_s",
    "host_bytes",
    "idle_s",
    "kv_bytes_per_token",
    "kv_minimum_bytes",
    "kv_wanted_bytes",
    "predict_tpot_s",
    "quantum_s",
    "resident_levels",
    "slowdown",
    "smallest_device_bytes",
    "start_deadline_s",
    "switch_s",
    "unload_s",
    "wake",
    "wake_s",
]
