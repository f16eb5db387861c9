"""Jobs that measure a model on a device: one at a time on each, with progress, to be cancelled and resumed."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from estiba_agent.api.bodies import CommandRefused, FactsAnswer, FactsRequest, JobState, JobView, ProfileRequest
from estiba_agent.engines.control_client import EngineError
from estiba_agent.models import BadModel
from estiba_agent.node_report import NodeHardware
from estiba_agent.profiling import TooLittleMemory, Validation, profile_model
from estiba_agent.supervisor.process import ENGINE_COMMAND
from estiba_agent.supervisor.supervisor import NoRoom, Supervisor
from estiba_scheduler.domain import Device, InstanceSpec, ModelProfile, ProfileKey, Reason, Rung
from estiba_scheduler.prediction import ModelFacts, device_bytes, estimate_profile
from estiba_scheduler.quantities import format_bytes

from ..model_facts import ModelFactsDesk
from .job_engine import ENGINE_DIR, START_DEADLINE_S, JobEngine, JobEngineFailed, start_job_engine

if TYPE_CHECKING:
    from estiba_agent.profiling import ProfilingResult

log = logging.getLogger(__name__)

BUDGET_S = 900.0
QUICK_STEPS_S = 7.0
"""A quick look takes a start, a restart from disk, and so long for all the rest."""
MOST_WAITING = 16
KEPT_JOBS = 32


@dataclass(slots=True)
class Job:
    id: str
    request: ProfileRequest
    key: ProfileKey
    facts: ModelFacts
    state: JobState = JobState.RUNNING
    done: int = 0
    total: int = 0
    note: str = ""
    profile: ModelProfile | None = None
    validation: tuple[Validation, ...] = ()
    lacks: tuple[str, ...] = ()
    error: str | None = None
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    def view(self) -> JobView:
        return JobView(
            job=self.id,
            state=self.state,
            deployment=self.request.deployment,
            device=self.request.device,
            done=self.done,
            total=self.total,
            note=self.note,
            profile=self.profile,
            validation=self.validation,
            lacks=self.lacks,
            error=self.error,
        )


class ProfileJobs:
    def __init__(
        self,
        node: str,
        job_dir: Callable[[str], Path],
        model_cache: Path,
        hardware: NodeHardware,
        supervisor: Supervisor,
        facts: ModelFactsDesk,
        on_profile: Callable[[ModelProfile], None],
        measure: Callable[..., Awaitable[ProfilingResult]] = profile_model,
        engine_command: Sequence[str] = ENGINE_COMMAND,
    ) -> None:
        self._node = node
        self._job_dir = job_dir
        self._model_cache = model_cache
        self._hardware = hardware
        self._supervisor = supervisor
        self._facts = facts
        self._on_profile = on_profile
        self._measure = measure
        self._engine_command = engine_command
        self._jobs: dict[str, Job] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    async def start(self, request: ProfileRequest) -> str:
        """The new job's id. Raises CommandRefused when it can't be measured now, with the numbers."""
        waiting = sum(job.state is JobState.RUNNING for job in self._jobs.values())
        if waiting >= MOST_WAITING:
            raise CommandRefused(429, "TooManyJobs", f"{waiting} jobs run or wait already; wait for one, or cancel it")
        await self._supervisor.look_again()
        device = self._device(request.device)
        found = await self._facts.answer(FactsRequest(model=request.model))
        key = ProfileKey(
            model_digest=found.digest,
            dtype=found.dtype,
            engine=found.engine,
            engine_version=found.engine_version,
            product=device.product,
        )
        for job in self._jobs.values():
            if job.state is JobState.RUNNING and job.key == key and job.request.device == request.device:
                return job.id
        self._require_room(request, found, key, device)
        job = Job(f"p-{uuid.uuid4().hex[:8]}", request, key, found.facts)
        self._jobs[job.id] = job
        self._forget_old()
        job.task = asyncio.create_task(self._run(job, device), name=f"profile {request.deployment}")
        return job.id

    def view(self, job: str) -> JobView:
        return self._job(job).view()

    def all(self) -> list[JobView]:
        return [job.view() for job in self._jobs.values()]

    async def cancel(self, job: str) -> JobView:
        """Returns when the job's engine is gone. What was measured is kept for the next try."""
        known = self._job(job)
        known.cancelled.set()
        if known.task is not None and not known.task.done():
            known.task.cancel()
            await asyncio.wait({known.task})
        return known.view()

    async def cancel_all(self) -> None:
        for job in list(self._jobs):
            await self.cancel(job)

    # -- inner ------------------------------------------------------------------------------------------------------

    async def _run(self, job: Job, device: Device) -> None:
        try:
            await self._measure_in_turn(job, device)
        except asyncio.CancelledError:
            job.state = JobState.FAILED
            job.error = "cancelled; what was measured is kept, and a new job goes on from there"
        except (BadModel, NoRoom, JobEngineFailed, TooLittleMemory, EngineError, TimeoutError, OSError) as error:
            job.state, job.error = JobState.FAILED, str(error) or type(error).__name__
            log.warning("profiling %s failed: %s", job.request.deployment, job.error)
        except Exception as error:
            job.state, job.error = JobState.FAILED, f"{type(error).__name__}: {error}; the agent's log has more"
            log.exception("profiling %s broke", job.request.deployment)

    async def _measure_in_turn(self, job: Job, device: Device) -> None:
        turn = self._turns.setdefault(device.uuid, asyncio.Lock())
        if turn.locked():
            job.note = f"waits for the job that measures on {device.uuid}"
        async with turn:
            job.note = "starting"
            reading = self._hardware.reading
            assert reading is not None, "the device was found in it"
            directory = self._job_dir(str(job.key))
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)

            engines: list[JobEngine] = []

            async def start_engine(resident_bytes: int | None, kv_bytes: int, budget_bytes: int) -> JobEngine:
                spec = self._spec(job, device, resident_bytes, kv_bytes, budget_bytes)
                engine = await start_job_engine(
                    spec,
                    self._supervisor,
                    self._hardware,
                    directory / ENGINE_DIR,
                    self._model_cache,
                    self._engine_command,
                )
                engines.append(engine)
                return engine

            def progress(done: int, total: int, note: str) -> None:
                job.done, job.total, job.note = done, total, note

            try:
                result = await self._measure(
                    start_engine,
                    job.request.model,
                    device,
                    reading.link_of(device),
                    job.key,
                    budget_s=_quick_budget_s(job, device) if job.request.quick else BUDGET_S,
                    quick=job.request.quick,
                    store_dir=directory,
                    on_progress=progress,
                    cancelled=job.cancelled.is_set,
                    facts=job.facts,
                )
            finally:
                for engine in engines:
                    await asyncio.shield(engine.stop())
        job.profile, job.validation, job.lacks = result.profile, result.validation, result.lacks
        job.state, job.note = JobState.DONE, "measured"
        self._on_profile(result.profile)

    def _spec(
        self, job: Job, device: Device, resident_bytes: int | None, kv_bytes: int, budget_bytes: int
    ) -> InstanceSpec:
        return InstanceSpec(
            id=f"{job.id}-engine",
            deployment=job.request.deployment,
            model=job.request.model,
            served_name=job.request.deployment.rpartition("/")[2],
            node=self._node,
            device=device.uuid,
            resident_bytes=device.memory_bytes if resident_bytes is None else resident_bytes,
            kv_bytes=kv_bytes,
            budget_bytes=budget_bytes,
            start_deadline_s=START_DEADLINE_S,
            generation=1,
        )

    def _device(self, uuid: str) -> Device:
        reading = self._hardware.reading
        known = {device.uuid: device for device in reading.devices} if reading else {}
        if uuid not in known:
            raise CommandRefused(
                422, Reason.NO_DEVICE, f"device {uuid} is not here; there are: {', '.join(sorted(known)) or 'none'}"
            )
        return known[uuid]

    def _require_room(self, request: ProfileRequest, found: FactsAnswer, key: ProfileKey, device: Device) -> None:
        """All weights should fit; of a model that is larger than the device, as much as it has."""
        footprint = estimate_profile(key, found.facts, device).footprint
        kv_bytes = footprint.kv_bytes_per_token * request.model.context_tokens
        whole = device_bytes(footprint, footprint.weight_bytes, kv_bytes)
        need = min(whole, device.usable_bytes)
        free = device.free_bytes
        if free is not None and need > free - device.reserve_bytes:
            raise CommandRefused(
                409,
                Reason.INSUFFICIENT_MEMORY,
                f"measuring {request.deployment} on {device.uuid} takes {format_bytes(need)} and "
                f"{format_bytes(max(0, free - device.reserve_bytes))} are free; "
                "put away what runs there, or measure later",
            )

    def _job(self, job: str) -> Job:
        if job not in self._jobs:
            raise CommandRefused(404, "NoSuchJob", f"there is no job {job[:80]}; a restarted agent has none")
        return self._jobs[job]

    def _forget_old(self) -> None:
        over = [job for job in self._jobs.values() if job.state is not JobState.RUNNING]
        for job in over[: max(0, len(self._jobs) - KEPT_JOBS)]:
            del self._jobs[job.id]


def _quick_budget_s(job: Job, device: Device) -> float:
    """Larger models take longer to start, and may take longer to measure."""
    cold = estimate_profile(job.key, job.facts, device).rung(Rung.COLD)
    return QUICK_STEPS_S + 2.0 * (cold.seconds_s if cold else 0.0)
