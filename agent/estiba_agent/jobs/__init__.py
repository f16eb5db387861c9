"""Profiling jobs: one at a time on a device, on engines outside supervision."""

from .profile_jobs import ProfileJobs

__all__ = ["ProfileJobs"]
