"""A profile for people: what was measured, what is only estimated, and how well the fit predicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from estiba_agent.profiling import Validation
from estiba_scheduler.domain import Knot, ModelProfile, Provenance, ReloadRung, Rung
from estiba_scheduler.prediction import DecodeCurve
from estiba_scheduler.prediction.streaming import knee_fraction
from estiba_scheduler.quantities import format_bytes, format_seconds

from .curve_plot import Points, bar, curve

NOTHING = "–"
STYLES = {Provenance.MEASURED: "green", Provenance.FITTED: "yellow", Provenance.ESTIMATED: "dim"}
RUNGS = "sleep1: weights in host memory; sleep2: weights dropped, the process lives; cold: no process."
ASCII = str.maketrans({"–": "-", "±": "~", "─": "-"})


def render(
    profile: ModelProfile, validations: Sequence[Validation], console: Console, lacks: Sequence[str] = ()
) -> None:
    """Print the whole report. Reads the same without colour, in a file or a pipe, and in ASCII where that is all."""
    plain = not console.encoding.lower().startswith("utf")
    with console.capture() as captured:
        for part in _parts(profile, validations, lacks, plain):
            console.print(part, soft_wrap=isinstance(part, Text))
    text = captured.get()
    console.file.write(text.translate(ASCII).encode("ascii", "replace").decode() if plain else text)


def _parts(
    profile: ModelProfile, validations: Sequence[Validation], lacks: Sequence[str], plain: bool
) -> Iterator[RenderableType]:
    curve_of = DecodeCurve(profile)
    parts: tuple[RenderableType, ...] = (
        _heading(profile),
        *(Text(f"Note: {lack}", style="yellow") for lack in lacks),
        _footprint(profile),
        _knots(profile, curve_of),
        *_rejected(profile),
        Text("\n".join(_picture(profile, validations, curve_of, plain))),
        _knee(profile, curve_of),
        _reload(profile),
        Text("\n".join(_bars(profile, plain))),
        *_validation(validations),
        *_ratios(profile),
    )
    yield from parts


def _heading(profile: ModelProfile) -> Text:
    key = profile.key
    text = Text()
    text.append(f"{key.model_digest[:24]} as {key.dtype} on {key.product}", style="bold")
    text.append(f" ({key.engine} {key.engine_version}, tensor parallel {key.tensor_parallel}, {key.offload_mechanism})")
    if profile.measured_at:
        node = profile.measured_on or "an unnamed node"
        text.append(f"\nmeasured on {node} in {format_seconds(profile.profiling_s)}")
    else:
        text.append("\nnever measured: every figure is an estimate from the model's size", style="yellow")
    return text


def _footprint(profile: ModelProfile) -> Table:
    foot = profile.footprint
    label = _label(foot.provenance)
    table = _table("Footprint", "on device", "in host memory", "")
    rows: tuple[tuple[str, int | None, int | None, str | Text], ...] = (
        ("weights", foot.weight_bytes, None, _of_layers(profile)),
        ("activations of a step", foot.activation_bytes, None, label),
        ("ring, while any layer streams", foot.stream_buffer_bytes, None, label),
        ("process", foot.overhead_bytes, foot.process_host_bytes, label),
        ("worst moment of a start", foot.load_peak_bytes, foot.load_peak_host_bytes, label),
        ("asleep, level 1", foot.sleep1_device_bytes, foot.sleep1_host_bytes, _rung_label(profile, Rung.SLEEP1)),
        ("asleep, level 2", foot.sleep2_device_bytes, foot.sleep2_host_bytes, _rung_label(profile, Rung.SLEEP2)),
    )
    for name, on_device, in_host, note in rows:
        table.add_row(name, *(NOTHING if n is None else format_bytes(n) for n in (on_device, in_host)), note)
    table.add_row("KV cache, per token", format_bytes(foot.kv_bytes_per_token), NOTHING, "by its shape")
    table.add_row("offloaded weights, per byte", NOTHING, f"{foot.host_factor:.2f} B", label)
    return table


def _of_layers(profile: ModelProfile) -> str:
    foot = profile.footprint
    return f"{format_bytes(foot.fixed_bytes)} stay put"


def _knots(profile: ModelProfile, curve_of: DecodeCurve) -> Table:
    weights = profile.footprint.weight_bytes
    table = _table("Resident", "bytes", "batch", "context", "decode step", "slowdown", "steps", "")
    for knot in _in_order(profile.sensitivity.knots):
        full_s = curve_of.fully_resident_s(knot.batch)
        table.add_row(
            f"{knot.resident_fraction:.0%}",
            format_bytes(knot.resident_fraction * weights),
            str(knot.batch),
            str(knot.context_tokens) if knot.context_tokens else NOTHING,
            _with_spread(knot.tpot_s, knot.spread_s),
            f"{knot.tpot_s / full_s:.2f}x",
            str(knot.samples) if knot.provenance is not Provenance.ESTIMATED else NOTHING,
            _label(knot.provenance),
        )
    return table


def _rejected(profile: ModelProfile) -> Iterable[Table]:
    if not profile.sensitivity.rejected:
        return
    table = _table("Rejected", "achieved", "why it is not believed")
    for knot in profile.sensitivity.rejected:
        table.add_row(f"{knot.resident_fraction:.0%} asked", f"{knot.achieved_fraction:.0%}", knot.reason)
    yield table


def _picture(profile: ModelProfile, validations: Sequence[Validation], curve_of: DecodeCurve, plain: bool) -> list[str]:
    weights = profile.footprint.weight_bytes
    single = [k for k in profile.sensitivity.knots if k.batch == 1]
    shortest = min((k.context_tokens for k in single), default=0)
    base = [k for k in single if k.context_tokens == shortest]
    dot, ring, guess = ("o", "v", "e") if plain else ("●", "○", "◌")
    knots = {
        dot: [k for k in base if k.provenance is not Provenance.ESTIMATED],
        guess: [k for k in base if k.provenance is Provenance.ESTIMATED],
    }
    points = [Points(mark, [(k.resident_fraction, k.tpot_s) for k in of]) for mark, of in knots.items()]
    points.append(Points(ring, [(v.resident_fraction, v.measured_s) for v in validations]))
    lines = curve(
        lambda share: curve_of.predict(round(share * weights)).tpot_s,
        points,
        format_seconds,
        upright=curve_of.knee_bytes() / weights,
        plain=plain,
    )
    legend = f"{dot} measured" if knots[dot] else f"{guess} estimated"
    if validations:
        legend += f"   {ring} measured to check the fit"
    return ["", "Decode step over resident weights, batch 1", *lines, f"{legend}   line: predicted", ""]


def _knee(profile: ModelProfile, curve_of: DecodeCurve) -> Text:
    foot, link = profile.footprint, profile.sensitivity.link_bytes_per_s
    compute_s = curve_of.fully_resident_s()
    text = Text(f"Knee of the curve (upright line): {curve_of.knee_bytes() / foot.weight_bytes:.0%} resident. ")
    if link:
        knee = knee_fraction(compute_s, link, foot.weight_bytes, foot.fixed_bytes)
        text.append(
            f"The streaming formula r* = 1 - compute x link / weights = 1 - {format_seconds(compute_s)} x "
            f"{format_bytes(link)}/s / {format_bytes(foot.weight_bytes)} says {knee:.0%}."
        )
    else:
        text.append("No step waited for the host link, so its rate is not known.")
    extra = profile.sensitivity
    if extra.stream_overhead_s:
        text.append(f" Streaming costs {format_seconds(extra.stream_overhead_s)} a step beyond that rate.")
    if extra.prefill_s_per_token:
        text.append(f" Prefill: {format_seconds(extra.prefill_s_per_token)} a token.")
    return text


def _reload(profile: ModelProfile) -> Table:
    table = _table("Reload", "away", "back", "fixed", "rest at", "from", "times", "")
    for rung in profile.reload:
        measured = rung.provenance is not Provenance.ESTIMATED
        table.add_row(
            rung.rung.value,
            format_seconds(rung.unload_s),
            _with_spread(rung.seconds_s, rung.spread_s),
            format_seconds(rung.fixed_s) if rung.fixed_s else NOTHING,
            f"{format_bytes(rung.bytes_per_s)}/s" if rung.bytes_per_s else NOTHING,
            rung.path.replace("_", " "),
            str(rung.samples) if measured else NOTHING,
            _label(rung.provenance),
        )
    for missing in (r for r in Rung if profile.rung(r) is None):
        table.add_row(missing.value, *[NOTHING] * 6, Text("not usable", style="red"))
    return table


def _bars(profile: ModelProfile, plain: bool) -> list[str]:
    most = max((max(r.seconds_s, r.unload_s) for r in profile.reload), default=0.0)

    def lines(rung: ReloadRung) -> list[str]:
        label = "" if rung.provenance is Provenance.MEASURED else f" {rung.provenance}"
        return [
            f"{rung.rung.value:>8} away {bar(rung.unload_s, most, plain=plain)} {format_seconds(rung.unload_s)}{label}",
            f"{'':>8} back {bar(rung.seconds_s, most, plain=plain)} {format_seconds(rung.seconds_s)}{label}",
        ]

    return [*(line for rung in profile.reload for line in lines(rung)), RUNGS, ""]


def _validation(validations: Sequence[Validation]) -> Iterable[Table]:
    if not validations:
        return
    table = _table("Check of the fit", "predicted", "measured", "error")
    for v in validations:
        style = "green" if v.error <= 0.15 else "bold red"
        error = Text(f"{v.error:.1%}", style=style)
        table.add_row(
            f"{v.resident_fraction:.0%} resident", format_seconds(v.predicted_s), format_seconds(v.measured_s), error
        )
    yield table


def _ratios(profile: ModelProfile) -> Iterable[Text]:
    if profile.predicted_to_actual:
        told = ", ".join(
            f"{name.replace('_', ' ').removesuffix(' s')} {ratio:.2f}x"
            for name, ratio in profile.predicted_to_actual.items()
        )
        yield Text(f"The estimate made before measuring was, of the measured figure: {told}.")


def _in_order(knots: Sequence[Knot]) -> list[Knot]:
    return sorted(knots, key=lambda k: (k.batch, k.context_tokens, -k.resident_fraction))


def _with_spread(seconds: float, spread_s: float) -> str:
    """The spread is half of the inter-quartile range."""
    return f"{format_seconds(seconds)} ±{spread_s / seconds:.0%}" if seconds else format_seconds(seconds)


def _rung_label(profile: ModelProfile, rung: Rung) -> Text:
    known = profile.rung(rung)
    return _label(known.provenance) if known else Text("not usable", style="red")


def _label(provenance: Provenance) -> Text:
    return Text(provenance.value, style=STYLES[provenance])


def _table(*columns: str) -> Table:
    """Eighty characters wide at most, but for the last column of a table of reasons, which folds."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for number, column in enumerate(columns):
        last = number == len(columns) - 1
        table.add_column(column, justify="left" if last or not number else "right", overflow="fold", no_wrap=not last)
    return table
