"""Measures one model on one device, within a time: what decides most comes first, and nothing is measured twice."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from estiba_scheduler.domain import Device, Footprint, HostLink, ModelProfile, ModelSource, ProfileKey, Provenance, Rung
from estiba_scheduler.prediction import ModelFacts, estimate_profile
from estiba_scheduler.quantities import format_seconds

from .allowance import Cells, before_the_start
from .assembly import Middle, assemble
from .bench import Bench, Cell, Instruments
from .effort import FULL, QUICK, Effort
from .engine_face import StartEngine
from .progress import OnProgress, Progress
from .records import RecordBook, Refused, Started, Stepped, Unfit
from .residencies import even_grid, left_out, where_it_bends
from .result import ProfilingResult
from .validation import validate

log = logging.getLogger(__name__)

DISTURBED = 0.12
"""Half of the inter-quartile range of a knot's steps, as a part of their median."""


def resident_set_bytes(pid: int) -> int | None:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error as error:
        log.warning("the memory of engine process %d can't be read: %s", pid, error)
        return None


INSTRUMENTS = Instruments(time.monotonic, time.time, resident_set_bytes)


async def profile_model(
    start_engine: StartEngine,
    model: ModelSource,
    device: Device,
    link: HostLink | None,
    key: ProfileKey,
    *,
    budget_s: float,
    quick: bool,
    store_dir: Path,
    on_progress: OnProgress = lambda done, total, note: None,
    cancelled: Callable[[], bool] = lambda: False,
    facts: ModelFacts | None = None,
    effort: Effort | None = None,
    instruments: Instruments = INSTRUMENTS,
) -> ProfilingResult:
    """Measure `model` on `device`, which nothing else should be using, with engines from `start_engine`.

    Ends about `budget_s` seconds after it began: what was not measured by then stays estimated in the profile, and is
    named in `lacks`. Every figure is kept in `store_dir` at once; another call for the same key goes on from there.
    With `facts` the engine starts at full residency if that fits; without, it starts with all layers offloaded first.

    Raises what `start_engine` raises, EngineError when the engine goes away, TimeoutError when not even the start
    came in time, TooLittleMemory, and ProfilingCancelled after `cancelled()`. Whatever happens, its engine is stopped.
    """
    began = instruments.seconds()
    book = RecordBook(store_dir, key, instruments.epoch())
    progress = Progress(on_progress, cancelled)
    effort = effort or (QUICK if quick else FULL)
    cells = Cells.of(effort, model)
    kv_tokens = cells.kv_tokens(effort)
    estimated = estimate_profile(key, facts, device, link).footprint if facts else None
    allowance = before_the_start(estimated, device, kv_tokens)
    bench = Bench(start_engine, allowance, device, link, effort, kv_tokens, book, progress, instruments)
    if book.found:
        log.info("going on with %d measurements of %s made before", book.found, key)
    in_time = True
    try:
        async with asyncio.timeout(budget_s) as bound:
            await _measure(bench, book, effort, cells, progress)
    except TimeoutError:
        if not bound.expired():
            raise
        in_time = False
        log.warning("the time for measuring %s is over after %s", key, format_seconds(budget_s))
    finally:
        await asyncio.shield(bench.abandon())
    if not book.all(Started):
        raise TimeoutError(
            f"no engine was ready within {format_seconds(budget_s)}, the time there was for measuring; "
            "nothing was measured, give it more"
        )
    profile = assemble(key, book, device, link, instruments.epoch(), instruments.seconds() - began)
    validation = validate(profile, book.all(Stepped))
    lacks = _lacks(profile, book, budget_s, in_time)
    if in_time:
        book.finish()
    progress.finish("measured" if not lacks else f"measured, but {'; '.join(lacks)}")
    return ProfilingResult(profile=profile, validation=validation, lacks=lacks)


async def _measure(bench: Bench, book: RecordBook, effort: Effort, cells: Cells, progress: Progress) -> None:
    progress.expect(1)
    levels = await bench.levels()
    grid = even_grid(levels, effort.residencies)
    top, lowest = grid[-1], grid[0]
    side = _side_cells(cells, top, lowest, effort)
    refined = min(effort.refined, len(levels) - len(grid))
    turns = _further_turns(effort)
    progress.expect(len(grid) + refined + len(side) + 2 + len(turns) + 2 * effort.bare_wakes + 2 * effort.starts - 1)

    # What decides most comes first: the ends and the middle give the curve, then one of each kind.
    first, further = dict.fromkeys((top, lowest, grid[len(grid) // 2])), reversed(grid)
    for level in first:
        await bench.time_steps(Cell(level, 1, cells.context_tokens))
    await bench.put_away(Rung.SLEEP1, 0, top)
    for cell in side[:1]:
        await bench.time_steps(cell)
    await bench.put_away(Rung.SLEEP2, 0, top)
    for level in (level for level in further if level not in first):
        await bench.time_steps(Cell(level, 1, cells.context_tokens))
    for cell in side[1:]:
        await bench.time_steps(cell)

    measured = await _refine(bench, grid, levels, refined, cells, progress)
    held_out = left_out(levels, measured, effort.held_out)
    await _further_rounds(bench, effort, cells, measured, held_out, progress)

    await _disturbed_again(bench, book, effort, cells, held_out, progress)

    for rung, repetition in turns:
        await bench.put_away(rung, repetition, top)
    if effort.bare_wakes:
        for rung in (Rung.SLEEP1, Rung.SLEEP2):
            await bench.put_away(rung, 0, top, bare=True)
    await _starts(bench, book, effort)


def _side_cells(cells: Cells, top: int, lowest: int, effort: Effort) -> list[Cell]:
    """What a larger batch and a longer context do: at the top, and in a full profile the batch at the bottom too."""
    side = []
    if cells.batch is not None:
        side.append(Cell(top, cells.batch, cells.context_tokens))
    if cells.long_context_tokens is not None:
        side.append(Cell(top, 1, cells.long_context_tokens))
    if cells.batch is not None and effort.rounds > 1 and lowest != top:
        side.append(Cell(lowest, cells.batch, cells.context_tokens))
    return side


async def _refine(
    bench: Bench, grid: tuple[int, ...], levels: tuple[int, ...], count: int, cells: Cells, progress: Progress
) -> tuple[int, ...]:
    """The residencies measured: the grid and `count` more, each where the curve bends most by then. Ascending."""
    chosen = set(grid)
    for _ in range(count):
        steps = {level: step for level in chosen if (step := bench.step_s(level)) is not None}
        free = [level for level in levels if level in steps or level not in chosen]
        if (level := where_it_bends(free, steps)) is None:
            progress.skip()
            continue
        chosen.add(level)
        await bench.time_steps(Cell(level, 1, cells.context_tokens))
    return tuple(sorted(chosen))


async def _further_rounds(
    bench: Bench,
    effort: Effort,
    cells: Cells,
    measured: tuple[int, ...],
    held_out: tuple[int, ...],
    progress: Progress,
) -> None:
    """All residencies again, those to check with among them, so that both see the same machine. Up, then down."""
    sweep = sorted({*measured, *held_out})
    rounds = range(1, max(effort.rounds, 2 if held_out else 1))
    progress.expect(len(sweep) * len(rounds))
    for number in rounds:
        for level in sweep if number % 2 else reversed(sweep):
            await bench.time_steps(Cell(level, 1, cells.context_tokens, number, held_out=level in held_out))


async def _disturbed_again(
    bench: Bench, book: RecordBook, effort: Effort, cells: Cells, held_out: tuple[int, ...], progress: Progress
) -> None:
    for _ in range(effort.again):
        found = most_disturbed(book.all(Stepped), cells.context_tokens)
        if found is None:
            return
        level, rounds = found
        progress.expect(1)
        await bench.time_steps(Cell(level, 1, cells.context_tokens, rounds, held_out=level in held_out))


def most_disturbed(records: Sequence[Stepped], context_tokens: int) -> tuple[int, int] | None:
    """The residency whose single steps spread furthest of their median, too far to be let be, and its next round."""
    cells: dict[int, list[Stepped]] = defaultdict(list)
    for record in records:
        if (record.measurement.batch, record.measurement.context_tokens) == (1, context_tokens):
            cells[record.asked_bytes].append(record)
    spreads = {}
    for level, seen in cells.items():
        middle = Middle.of([step for record in seen for step in record.measurement.step_s])
        spreads[level] = middle.spread_s / middle.seconds
    if not spreads or max(spreads.values()) <= DISTURBED:
        return None
    level = max(spreads, key=lambda at: (spreads[at], at))
    return level, 1 + max(record.round for record in cells[level])


def _further_turns(effort: Effort) -> list[tuple[Rung, int]]:
    """Repetitions on the ladder beyond the first, the rungs in turn."""
    turns = [(Rung.SLEEP1, n) for n in range(1, effort.sleep1_repetitions)]
    turns += [(Rung.SLEEP2, n) for n in range(1, effort.sleep2_repetitions)]
    return sorted(turns, key=lambda turn: turn[1])


async def _starts(bench: Bench, book: RecordBook, effort: Effort) -> None:
    await bench.stop()
    while len(book.all(Started)) < effort.starts:
        await bench.start()
        await bench.stop()


def _lacks(profile: ModelProfile, book: RecordBook, budget_s: float, in_time: bool) -> tuple[str, ...]:
    footprint: Footprint = profile.footprint
    lacks = []
    if not in_time:
        lacks.append(f"the {format_seconds(budget_s)} for measuring were over before all was measured")
    knots = [k for k in profile.sensitivity.knots if k.provenance is not Provenance.ESTIMATED]
    if len({k.resident_fraction for k in knots}) < 2 and footprint.layer_bytes:
        lacks.append("the decode curve rests on fewer than two measured residencies")
    if knots and max(k.resident_fraction for k in knots) < 1.0:
        lacks.append("full residency was not measured")
    lacks += [f"{rung.rung} is estimated" for rung in profile.reload if rung.provenance is Provenance.ESTIMATED]
    lacks += [f"{record.rung} is left out: {record.message}" for record in book.all(Unfit)]
    if profile.sensitivity.rejected:
        lacks.append(f"{len(profile.sensitivity.rejected)} points were rejected")
    refused = {r.reason for r in book.all(Refused)}
    if refused:
        lacks.append(f"the engine refused some points: {', '.join(sorted(refused))}")
    return tuple(lacks)
