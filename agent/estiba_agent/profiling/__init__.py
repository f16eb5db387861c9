"""Measuring a model on a device: footprint, offloading sensitivity, reload ladder."""

from .allowance import TooLittleMemory
from .effort import FULL, QUICK, Effort
from .engine_face import EngineFace, ProfiledEngine, StartEngine
from .profiler import profile_model
from .result import ProfilingCancelled, ProfilingResult, Validation

__all__ = [
    "FULL",
    "QUICK",
    "Effort",
    "EngineFace",
    "ProfiledEngine",
    "ProfilingCancelled",
    "ProfilingResult",
    "StartEngine",
    "TooLittleMemory",
    "Validation",
    "profile_model",
]
