"""One engine under measurement: brought to a residency, timed, put to sleep, woken; every figure is written down."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from estiba_scheduler.domain import Device, DeviceKind, Footprint, HostLink, Rung
from estiba_scheduler.quantities import format_seconds

from ..engines.control_client import EngineRefused
from ..engines.wire import EnginePhase, EngineState, MeasureRequest, ResidencyRequest, SleepRequest, WakeRequest
from .allowance import Allowance, once_started
from .effort import Effort
from .engine_face import ProfiledEngine, StartEngine
from .progress import Progress
from .records import PutAway, RecordBook, Refused, Started, Stepped, Stopped, Unfit

log = logging.getLogger(__name__)

LEVELS = {Rung.SLEEP1: 1, Rung.SLEEP2: 2}


@dataclass(frozen=True, slots=True)
class Cell:
    """Where to time decode steps: residency asked for, batch, context; and in which round."""

    asked_bytes: int
    batch: int
    context_tokens: int
    round: int = 0
    held_out: bool = False


@dataclass(frozen=True, slots=True)
class Instruments:
    """What is read off the machine."""

    seconds: Callable[[], float]
    """Monotonic."""
    epoch: Callable[[], float]
    resident_set_bytes: Callable[[int], int | None]
    """Host memory of a process; None where it can't be told."""


class Bench:
    """Starts its engine when it is first needed: with everything in the book already, none is."""

    def __init__(
        self,
        start_engine: StartEngine,
        allowance: Allowance,
        device: Device,
        link: HostLink | None,
        effort: Effort,
        kv_tokens: int,
        book: RecordBook,
        progress: Progress,
        instruments: Instruments,
    ) -> None:
        self._start_engine = start_engine
        self._allowance = allowance
        self._device = device
        self._link_bytes_per_s = link.bandwidth_bytes_per_s if link else None
        self._effort = effort
        self._kv_tokens = kv_tokens
        self._book = book
        self._progress = progress
        self._instruments = instruments
        self._engine: ProfiledEngine | None = None
        self._resident_asked: int | None = None
        self._kv_in_force = 0

    # -- the engine -------------------------------------------------------------------------------------------------

    async def footprint(self) -> Footprint:
        """As the engine counts it; it is started for that if it never was."""
        if not self._book.all(Started):
            await self.start()
        return self._book.all(Started)[-1].footprint

    async def levels(self) -> tuple[int, ...]:
        """Residencies that fit, ascending. Raises TooLittleMemory."""
        return once_started(await self.footprint(), self._allowance.budget_bytes, self._kv_tokens, self._device)[1]

    async def start(self) -> ProfiledEngine:
        """Raises what `start_engine` raises."""
        if self._engine is not None:
            return self._engine
        allowance = self._allowance
        with self._progress.step("starting an engine"):
            engine = await self._start_engine(allowance.resident_bytes, allowance.kv_bytes, allowance.budget_bytes)
            self._engine = engine
            state = await engine.control.state()
            if state.footprint is None:
                raise EngineRefused(500, "Unknown", "the engine is ready and does not say its footprint")
            self._resident_asked, self._kv_in_force = None, allowance.kv_bytes
            self._keep(
                Started(
                    started_s=engine.started_s,
                    footprint=state.footprint,
                    resident_bytes=state.resident_bytes,
                    process_host_bytes=await self._process_host_bytes(engine, state),
                )
            )
        return engine

    async def stop(self, note: str = "stopping the engine") -> None:
        """Does nothing without an engine."""
        if self._engine is None:
            return
        with self._progress.step(note):
            engine, self._engine = self._engine, None
            began = self._instruments.seconds()
            await engine.stop()
            self._keep(Stopped(seconds=self._instruments.seconds() - began))

    async def abandon(self) -> None:
        """Stop without a word: the measuring is over."""
        if self._engine is not None:
            engine, self._engine = self._engine, None
            await engine.stop()

    # -- decode steps -----------------------------------------------------------------------------------------------

    def step_s(self, asked_bytes: int) -> float | None:
        """The median decode step of single sequences at a residency, in the first round; None: not measured."""
        for record in self._book.all(Stepped):
            if record.asked_bytes == asked_bytes and record.measurement.batch == 1:
                return median(record.measurement.step_s)
        return None

    async def time_steps(self, cell: Cell) -> None:
        """Measure one cell, unless that was done. A residency that the engine refuses is kept as refused."""
        if self._is_known(cell):
            self._progress.skip()
            return
        engine = await self.start()
        footprint = await self.footprint()
        share = cell.asked_bytes / footprint.weight_bytes
        note = f"decoding at {share:.0%} resident, batch {cell.batch}, context {cell.context_tokens}"
        with self._progress.step(note + (" (to check the fit)" if cell.held_out else "")):
            try:
                await self._go_to(engine, cell.asked_bytes)
                measurement = await engine.control.measure(
                    MeasureRequest(
                        batch=cell.batch,
                        context_tokens=cell.context_tokens,
                        steps=self._steps_for(cell, footprint),
                        warmup=self._effort.warmup,
                    )
                )
            except EngineRefused as refused:
                await self._keep_refusal(engine, cell, refused)
                return
            state = await engine.control.state()
            self._keep(
                Stepped(
                    asked_bytes=cell.asked_bytes,
                    round=cell.round,
                    held_out=cell.held_out,
                    measurement=measurement,
                    device_bytes=state.device_bytes,
                    host_bytes=state.host_bytes,
                    kv_bytes=state.kv_bytes,
                )
            )

    # -- the ladder -------------------------------------------------------------------------------------------------

    async def put_away(self, rung: Rung, repetition: int, resident_bytes: int, bare: bool = False) -> None:
        """To sleep and back, unless that was done or the engine can't. Ends at that residency."""
        known = any(a.rung is rung and a.repetition == repetition and a.bare == bare for a in self._book.all(PutAway))
        if known or any(u.rung is rung for u in self._book.all(Unfit)):
            self._progress.skip()
            return
        engine = await self.start()
        level = LEVELS[rung]
        with self._progress.step(f"asleep at level {level} and awake again" + (", no canary" if bare else "")):
            await self._go_to(engine, resident_bytes)
            began = self._instruments.seconds()
            try:
                asleep = await engine.control.sleep(SleepRequest(level=level, keep_kv=False))
            except EngineRefused as refused:
                self._keep(Unfit(rung=rung, message=f"the engine does not sleep at level {level}: {refused}"))
                return
            unload_s = self._instruments.seconds() - began
            process_host_bytes = await self._process_host_bytes(engine, asleep)
            began = self._instruments.seconds()
            try:
                await engine.control.wake(
                    WakeRequest(
                        resident_bytes=resident_bytes,
                        kv_bytes=self._kv_in_force,
                        budget_bytes=self._allowance.budget_bytes,
                        verify=not bare,
                    )
                )
            except EngineRefused as refused:
                if not await self._has_failed(engine):
                    raise
                log.error("the engine failed on its way back from sleep level %d: %s", level, refused)
                self._keep(Unfit(rung=rung, message=f"the wake from level {level} failed: {refused}"))
                await self.abandon()
                return
            self._keep(
                PutAway(
                    rung=rung,
                    repetition=repetition,
                    bare=bare,
                    unload_s=unload_s,
                    wake_s=self._instruments.seconds() - began,
                    resident_bytes=resident_bytes,
                    device_bytes=asleep.device_bytes,
                    host_bytes=asleep.host_bytes,
                    process_host_bytes=process_host_bytes,
                )
            )

    # -- inner ------------------------------------------------------------------------------------------------------

    def _is_known(self, cell: Cell) -> bool:
        where = cell.asked_bytes, cell.batch, cell.context_tokens
        timed = (
            (s.asked_bytes, s.measurement.batch, s.measurement.context_tokens, s.round) for s in self._book.all(Stepped)
        )
        refused = ((r.asked_bytes, r.batch, r.context_tokens) for r in self._book.all(Refused))
        return (*where, cell.round) in timed or where in refused

    async def _go_to(self, engine: ProfiledEngine, resident_bytes: int) -> None:
        if self._resident_asked == resident_bytes:
            return
        budget, footprint = self._allowance.budget_bytes, await self.footprint()
        kv_bytes, _ = once_started(footprint, budget, self._kv_tokens, self._device)
        self._resident_asked = None  # unknown while on the way
        await engine.control.residency(
            ResidencyRequest(resident_bytes=resident_bytes, kv_bytes=kv_bytes, budget_bytes=budget, generation=0)
        )
        self._resident_asked, self._kv_in_force = resident_bytes, kv_bytes

    def _steps_for(self, cell: Cell, footprint: Footprint) -> int:
        """As many steps as fill the time that a knot gets."""
        effort, expected_s = self._effort, self._expected_step_s(cell, footprint)
        if expected_s is None:
            return effort.most_steps
        return max(effort.least_steps, min(effort.most_steps, round(effort.knot_s / expected_s)))

    def _expected_step_s(self, cell: Cell, footprint: Footprint) -> float | None:
        """From what is known so far: a step streams at the link's rate, and is never faster than the fastest seen."""
        seen = [s.measurement for s in self._book.all(Stepped)]
        if not seen:
            return None
        rates = [m.streamed_bytes_per_step / median(m.step_s) for m in seen if m.streamed_bytes_per_step]
        rate = self._link_bytes_per_s or max(rates, default=0.0)
        fastest = min(median(m.step_s) for m in seen)
        return max(fastest, (footprint.weight_bytes - cell.asked_bytes) / rate if rate else 0.0)

    async def _keep_refusal(self, engine: ProfiledEngine, cell: Cell, refused: EngineRefused) -> None:
        state = await engine.control.state()
        log.warning("not measured at %d bytes resident: %s", cell.asked_bytes, refused)
        self._keep(
            Refused(
                asked_bytes=cell.asked_bytes,
                batch=cell.batch,
                context_tokens=cell.context_tokens,
                achieved_fraction=state.resident_fraction,
                reason=refused.reason,
                message=refused.message,
            )
        )
        if state.phase is EnginePhase.FAILED:
            await self.abandon()

    async def _has_failed(self, engine: ProfiledEngine) -> bool:
        return (await engine.control.state()).phase is EnginePhase.FAILED

    async def _process_host_bytes(self, engine: ProfiledEngine, state: EngineState) -> int:
        """Host memory of the process beyond weights; on a cpu device, what it holds there is host memory too."""
        resident_set = self._instruments.resident_set_bytes((await engine.control.identity()).pid)
        if resident_set is None:
            return 0
        on_device = state.device_bytes if self._device.kind is DeviceKind.CPU else 0
        return max(0, resident_set - on_device - state.host_bytes)

    def _keep(self, record: Started | Stopped | Stepped | Refused | PutAway | Unfit) -> None:
        self._book.add(record, self._instruments.epoch())
        if isinstance(record, PutAway):
            log.info(
                "%s: unloaded in %s, back in %s",
                record.rung,
                format_seconds(record.unload_s),
                format_seconds(record.wake_s),
            )
