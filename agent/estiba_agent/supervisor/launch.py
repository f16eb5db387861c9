"""From what is wanted of an instance to the launch file of its engine."""

from __future__ import annotations

from pathlib import Path

from estiba_agent.engines.wire import EngineLaunch
from estiba_scheduler.domain import InstanceSpec

from .hardware import Place


def launch_of(spec: InstanceSpec, place: Place, directory: Path, model_cache: Path) -> EngineLaunch:
    return EngineLaunch(
        instance=spec.id,
        deployment=spec.deployment,
        served_name=spec.served_name,
        model=spec.model,
        device=place.device,
        device_kind=place.kind,
        ledger_dir=place.ledger_dir,
        device_memory_bytes=place.memory_bytes,
        link_file=place.link_file,
        link_bytes_per_s=place.link_bytes_per_s,
        resident_bytes=spec.resident_bytes,
        kv_bytes=spec.kv_bytes,
        budget_bytes=spec.budget_bytes,
        control_socket=control_socket_in(directory),
        log_file=log_file_in(directory),
        model_cache=model_cache,
        compute_threads=place.compute_threads,
        generation=spec.generation,
    )


def control_socket_in(directory: Path) -> Path:
    return directory / "c.sock"


def log_file_in(directory: Path) -> Path:
    return directory / "log.txt"
