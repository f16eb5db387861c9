"""From records to a profile. What was not measured stays as estimated, and says so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from estiba_scheduler.domain import (
    Device,
    Footprint,
    HostLink,
    Knot,
    ModelProfile,
    ProfileKey,
    Provenance,
    RejectedKnot,
    ReloadRung,
    Rung,
    Sensitivity,
)
from estiba_scheduler.prediction import ModelFacts, estimate_profile

from ..engines.wire import Measurement
from .link_rate import planning_rate, streaming
from .records import PutAway, RecordBook, Refused, Started, Stepped, Stopped, Unfit
from .verification import objection


@dataclass(frozen=True, slots=True)
class Middle:
    """Median, and half of the inter-quartile range."""

    seconds: float
    spread_s: float
    samples: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Middle:
        if len(values) < 2:
            return cls(values[0], 0.0, len(values))
        low, _, high = quantiles(values, n=4, method="inclusive")
        return cls(median(values), (high - low) / 2, len(values))


def assemble(
    key: ProfileKey, book: RecordBook, device: Device, link: HostLink | None, now: float, profiling_s: float
) -> ModelProfile:
    """Needs one Started record at least."""
    started = book.all(Started)
    estimate = estimate_profile(key, facts_of(started[-1].footprint), device, link)
    footprint = _footprint(started, book)
    sensitivity = _sensitivity(footprint, book, link)
    if len({k.resident_fraction for k in sensitivity.knots}) < 2:
        sensitivity = sensitivity.model_copy(update={"knots": sensitivity.knots + estimate.sensitivity.knots})
    profile = ModelProfile(
        key=key,
        footprint=footprint,
        sensitivity=sensitivity,
        reload=_ladder(footprint, book, estimate),
        measured_at=now,
        measured_on=device.node,
        profiling_s=profiling_s,
    )
    return profile.model_copy(update={"predicted_to_actual": _ratios(estimate, profile)})


def facts_of(footprint: Footprint) -> ModelFacts:
    return ModelFacts(
        weight_bytes=footprint.weight_bytes,
        fixed_bytes=footprint.fixed_bytes,
        layer_bytes=footprint.layer_bytes,
        kv_bytes_per_token=footprint.kv_bytes_per_token,
        host_factor=footprint.host_factor,
    )


def believed(record: Stepped, footprint: Footprint) -> bool:
    return _objection(record, footprint) is None


def knots(records: Iterable[Stepped], footprint: Footprint) -> tuple[Knot, ...]:
    """One for each residency, batch and context, of the steps of all rounds; the most resident first."""
    cells: dict[tuple[int, int, int], list[Stepped]] = defaultdict(list)
    for record in records:
        if believed(record, footprint):
            m = record.measurement
            cells[-m.resident_bytes, m.batch, m.context_tokens].append(record)
    return tuple(_knot(cells[cell], footprint) for cell in sorted(cells))


# -- inner ------------------------------------------------------------------------------------------------------------


def _knot(records: list[Stepped], footprint: Footprint) -> Knot:
    middle = Middle.of([step for record in records for step in record.measurement.step_s])
    m = records[0].measurement
    return Knot(
        resident_fraction=min(1.0, m.resident_bytes / footprint.weight_bytes),
        batch=m.batch,
        context_tokens=m.context_tokens,
        tpot_s=middle.seconds,
        spread_s=middle.spread_s,
        samples=middle.samples,
        provenance=Provenance.MEASURED,
    )


def _footprint(started: tuple[Started, ...], book: RecordBook) -> Footprint:
    """The engine's own count, and over it what was seen: the most of each."""
    base, steps, away = started[-1].footprint, book.all(Stepped), book.all(PutAway)
    changes: dict[str, int | float | Provenance] = {
        "activation_bytes": max([base.activation_bytes, *(s.measurement.activation_bytes for s in steps)]),
        "load_peak_bytes": max(s.footprint.load_peak_bytes for s in started),
        "load_peak_host_bytes": max(s.footprint.load_peak_host_bytes for s in started),
        "process_host_bytes": max(
            [base.process_host_bytes, *(s.process_host_bytes for s in started), *(a.process_host_bytes for a in away)]
        ),
        "provenance": Provenance.MEASURED,
    }
    factors = [
        s.host_bytes / offloaded for s in steps if (offloaded := base.weight_bytes - s.measurement.resident_bytes) > 0
    ]
    if factors := [f for f in factors if f > 0]:
        changes["host_factor"] = max(factors)
    for rung in (Rung.SLEEP1, Rung.SLEEP2):
        if seen := [a for a in away if a.rung is rung]:
            changes[f"{rung.value}_device_bytes"] = max(a.device_bytes for a in seen)
            changes[f"{rung.value}_host_bytes"] = max(a.host_bytes for a in seen)
    return base.model_copy(update=changes)


def _sensitivity(footprint: Footprint, book: RecordBook, link: HostLink | None) -> Sensitivity:
    fitted = [s for s in book.all(Stepped) if not s.held_out]
    nominal = link.bandwidth_bytes_per_s if link else None
    single = [s.measurement for s in fitted if s.measurement.batch == 1 and believed(s, footprint)]
    reached = streaming(single, nominal)
    return Sensitivity(
        knots=knots(fitted, footprint),
        rejected=_rejected(fitted, book.all(Refused), footprint),
        link_bytes_per_s=planning_rate(link, reached),
        prefill_s_per_token=_prefill_s_per_token(single),
        stream_overhead_s=reached.overhead_s if reached else 0.0,
    )


def _prefill_s_per_token(measurements: list[Measurement]) -> float | None:
    """Of the longest prompt at the fullest residency."""
    if not measurements:
        return None
    best = max((m.resident_bytes, m.context_tokens) for m in measurements)
    seen = [m.prefill_s / m.context_tokens for m in measurements if (m.resident_bytes, m.context_tokens) == best]
    return median(seen) or None


def _rejected(fitted: list[Stepped], refused: tuple[Refused, ...], footprint: Footprint) -> tuple[RejectedKnot, ...]:
    weights = footprint.weight_bytes
    found = [
        (r.asked_bytes, r.measurement.resident_bytes / weights, why)
        for r in fitted
        if (why := _objection(r, footprint)) is not None
    ]
    found += [(r.asked_bytes, r.achieved_fraction, f"the engine refused it: {r.reason}: {r.message}") for r in refused]
    return tuple(
        RejectedKnot(resident_fraction=asked / weights, achieved_fraction=achieved, reason=why)
        for asked, achieved, why in dict.fromkeys(found)
    )


def _objection(record: Stepped, footprint: Footprint) -> str | None:
    achieved = record.measurement.resident_bytes
    return objection(footprint, record.asked_bytes, achieved, record.device_bytes, record.kv_bytes)


def _ladder(footprint: Footprint, book: RecordBook, estimate: ModelProfile) -> tuple[ReloadRung, ...]:
    """A rung that the engine doesn't do, or comes back from wrong, is left out: the planner then never asks for it."""
    unfit = {record.rung for record in book.all(Unfit)}
    rungs = []
    for rung in estimate.reload:
        if rung.rung in unfit:
            continue
        measured = _cold(footprint, book) if rung.rung is Rung.COLD else _asleep(rung.rung, footprint, book)
        rungs.append(measured or rung)
    return tuple(rungs)


def _asleep(rung: Rung, footprint: Footprint, book: RecordBook) -> ReloadRung | None:
    seen = [a for a in book.all(PutAway) if a.rung is rung]
    verified, bare = [a.wake_s for a in seen if not a.bare], [a.wake_s for a in seen if a.bare]
    if not verified:
        return None
    wake = Middle.of(verified)
    fixed_s = min(wake.seconds, max(0.0, wake.seconds - median(bare))) if bare else 0.0
    return _rung(
        rung,
        wake,
        unload_s=median(a.unload_s for a in seen),
        fixed_s=fixed_s,
        moved_bytes=footprint.weight_bytes,
        path="host" if rung is Rung.SLEEP1 else "page_cache",
    )


def _cold(footprint: Footprint, book: RecordBook) -> ReloadRung | None:
    """The files were read a moment before, to make sure of the digest or by the last start: from the page cache."""
    starts, stops = book.all(Started), book.all(Stopped)
    if not starts:
        return None
    start = Middle.of([s.started_s for s in starts])
    read = [a.wake_s for a in book.all(PutAway) if a.rung is Rung.SLEEP2 and a.bare]
    return _rung(
        Rung.COLD,
        start,
        unload_s=median(s.seconds for s in stops) if stops else 0.0,
        fixed_s=max(0.0, start.seconds - median(read)) if read else 0.0,
        moved_bytes=footprint.weight_bytes,
        path="page_cache",
    )


def _rung(rung: Rung, middle: Middle, unload_s: float, fixed_s: float, moved_bytes: int, path: str) -> ReloadRung:
    moving = middle.seconds - fixed_s
    return ReloadRung(
        rung=rung,
        seconds_s=middle.seconds,
        spread_s=middle.spread_s,
        unload_s=unload_s,
        fixed_s=fixed_s,
        bytes_per_s=moved_bytes / moving if moving > 0 else None,
        path=path,
        samples=middle.samples,
        provenance=Provenance.MEASURED,
    )


def _ratios(estimate: ModelProfile, actual: ModelProfile) -> dict[str, float]:
    """Estimated over measured, for what was measured."""
    pairs: dict[str, tuple[float | None, float | None]] = {
        name: (getattr(estimate.footprint, name), getattr(actual.footprint, name))
        for name in ("activation_bytes", "overhead_bytes", "stream_buffer_bytes", "sleep1_host_bytes")
    }
    measured = [k for k in actual.sensitivity.knots if k.provenance is Provenance.MEASURED and k.batch == 1]
    if measured:
        fullest = max(measured, key=lambda k: (k.resident_fraction, -k.context_tokens))
        guesses = {round(k.resident_fraction, 3): k.tpot_s for k in estimate.sensitivity.knots}
        pairs["tpot_s"] = (guesses.get(round(fullest.resident_fraction, 3)), fullest.tpot_s)
    for rung in actual.reload:
        guess = estimate.rung(rung.rung)
        if rung.provenance is Provenance.MEASURED and guess is not None:
            pairs[f"{rung.rung.value}_s"] = (guess.seconds_s, rung.seconds_s)
    return {name: guess / real for name, (guess, real) in pairs.items() if guess and real}
