"""Decode time per token over (resident bytes, batch, context, link share).

What was measured wins: the curve goes through the measured knots, made monotone. The streaming model, fitted to
those same knots, only says what they leave open: where the knee lies between two of them, how the line goes on
beyond the last one, and what another share of the link does. With no measurement the model is the prior, and
says that it is an estimate.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from ..domain import Knot, ModelProfile, Provenance
from .hinge import Hinge, Point, fit
from .monotone import nondecreasing
from .streaming import streamed_bytes

PER_SEQUENCE = 0.05
"""Share of compute that one more sequence in the batch adds, where only one batch size was measured (a rule)."""
BLIND_BYTES_PER_S = 10e9
"""Memory bandwidth assumed where nothing at all is known of a model's decode time."""
_SAME = 0.02  # fractions nearer than this are the same residency


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds per token, how far off it may be, and what it rests on."""

    tpot_s: float
    spread_s: float
    provenance: Provenance


class DecodeCurve:
    """A profile's sensitivity, fitted once and asked often."""

    def __init__(self, profile: ModelProfile) -> None:
        foot = profile.footprint
        self._weights = foot.weight_bytes
        self._offloadable = min(foot.offloadable_bytes, foot.weight_bytes - foot.fixed_bytes)
        knots = [k for k in profile.sensitivity.knots if k.provenance is not Provenance.ESTIMATED]
        self._measured = bool(knots)
        knots = knots or list(profile.sensitivity.knots)
        knots = knots or [
            Knot(resident_fraction=1.0, tpot_s=foot.weight_bytes / BLIND_BYTES_PER_S, provenance=Provenance.ESTIMATED)
        ]
        self._batch, self._context, base = _richest(knots)
        points = _pooled(base, foot.weight_bytes)
        sensitivity = profile.sensitivity
        self._hinge: Hinge = fit(points, sensitivity.link_bytes_per_s, sensitivity.stream_overhead_s)
        self._streamed, self._steps = _vertices(points, self._hinge)
        self._spreads = [(p.streamed, s) for p, s in zip(points, _spreads(base, points, self._weights), strict=True)]
        self._first, self._last = points[0].streamed, points[-1].streamed
        slope = self._hinge.s_per_byte
        self._link = sensitivity.link_bytes_per_s or (1.0 / slope if slope > 0 else None)
        self._growth = _batch_growth(knots, self._batch, self._context, self._at(0.0))
        self._per_context_token_s = _context_slope(knots, self._batch, self._context, self._at(0.0))

    def predict(
        self, resident_bytes: int, batch: int = 1, context: int = 0, link_share_bytes_per_s: float | None = None
    ) -> Prediction:
        """Decode step time with that many weight bytes on the device.

        `context` 0 stands for the context that was measured. A link share other than the measured link stretches
        the streamed bytes: what s bytes cost at half the rate is what 2 s bytes cost at the full one.
        """
        streamed: float = streamed_bytes(self._weights, self._offloadable, resident_bytes)
        stretch = self._link / link_share_bytes_per_s if self._link and link_share_bytes_per_s else 1.0
        streamed *= stretch
        step = self._at(streamed)
        grown = self._grown(batch)
        # A bigger batch computes longer but streams the same bytes: only the compute part grows.
        step = max(step, self._at(0.0) * grown)
        if context:
            step += max(0.0, self._per_context_token_s * (context - self._context))
        return self._labelled(step, streamed, inside=abs(stretch - 1.0) <= 0.05 and batch in self._growth)

    def fully_resident_s(self, batch: int = 1) -> float:
        return self.predict(self._weights, batch).tpot_s

    def knee_bytes(self, link_share_bytes_per_s: float | None = None) -> int:
        """Resident bytes above which more of them buy nothing, on that share of the link."""
        knee = self._hinge.knee_bytes
        if knee is None:
            return self._weights - self._offloadable
        if self._link and link_share_bytes_per_s:
            knee *= link_share_bytes_per_s / self._link
        return int(max(self._weights - self._offloadable, self._weights - knee))

    def _at(self, streamed: float) -> float:
        xs, ys = self._streamed, self._steps
        if streamed <= xs[0]:
            return ys[0]
        if streamed >= xs[-1]:
            if ys[-1] <= self._hinge.flat_s:  # the last thing seen is still flat: the model says where it ends
                return max(ys[-1], self._hinge.step_s(streamed))
            return ys[-1] + (streamed - xs[-1]) * self._hinge.s_per_byte
        i = bisect_right(xs, streamed)
        share = (streamed - xs[i - 1]) / (xs[i] - xs[i - 1])
        return ys[i - 1] + share * (ys[i] - ys[i - 1])

    def _grown(self, batch: int) -> float:
        known = sorted(self._growth)
        if batch in self._growth:
            return self._growth[batch]
        below = [b for b in known if b < batch]
        above = [b for b in known if b > batch]
        if below and above:
            low, high = below[-1], above[0]
            share = (batch - low) / (high - low)
            return self._growth[low] + share * (self._growth[high] - self._growth[low])
        edge = below[-1] if below else above[0]
        slope = PER_SEQUENCE
        if len(known) > 1:
            a, b = (known[-2], known[-1]) if below else (known[0], known[1])
            slope = (self._growth[b] - self._growth[a]) / (b - a)
        return max(0.1, self._growth[edge] + slope * (batch - edge))

    def _labelled(self, step: float, streamed: float, inside: bool) -> Prediction:
        nearest = min(self._spreads, key=lambda xs: abs(xs[0] - streamed))[1]
        if not self._measured:
            return Prediction(step, max(nearest, 0.5 * step), Provenance.ESTIMATED)
        slack = self._weights * _SAME
        if inside and self._first - slack <= streamed <= self._last + slack:
            return Prediction(step, nearest, Provenance.MEASURED)
        return Prediction(step, max(nearest, 0.15 * step), Provenance.FITTED)


def predict_tpot_s(
    profile: ModelProfile,
    resident_bytes: int | None = None,
    *,
    resident_fraction: float | None = None,
    batch: int = 1,
    context: int = 0,
    link_share_bytes_per_s: float | None = None,
) -> Prediction:
    """One prediction; give the residency in bytes or as a fraction of all weights. Raises ValueError for neither."""
    if resident_bytes is None:
        if resident_fraction is None:
            raise ValueError("say resident_bytes or resident_fraction")
        resident_bytes = round(resident_fraction * profile.footprint.weight_bytes)
    return DecodeCurve(profile).predict(resident_bytes, batch, context, link_share_bytes_per_s)


def fully_resident_tpot_s(profile: ModelProfile, batch: int = 1) -> float:
    """Seconds per token with every weight on the device."""
    return DecodeCurve(profile).fully_resident_s(batch)


def slowdown(profile: ModelProfile, resident_bytes: int, batch: int = 1, link_share: float | None = None) -> float:
    """Decode time over the fully resident decode time; 1 is no loss."""
    curve = DecodeCurve(profile)
    return curve.predict(resident_bytes, batch, 0, link_share).tpot_s / curve.fully_resident_s(batch)


def _richest(knots: list[Knot]) -> tuple[int, int, list[Knot]]:
    """The (batch, context) with the most residencies, the smaller where two are even, and its knots."""
    slices: dict[tuple[int, int], list[Knot]] = {}
    for knot in knots:
        slices.setdefault((knot.batch, knot.context_tokens), []).append(knot)
    key = min(slices, key=lambda k: (-len({round(n.resident_fraction, 3) for n in slices[k]}), k))
    return *key, slices[key]


def _pooled(knots: list[Knot], weight_bytes: int) -> list[Point]:
    """Knots in order of streamed bytes; equal residencies are averaged; then made monotone."""
    groups: dict[float, list[Knot]] = {}
    for knot in knots:
        groups.setdefault(round(knot.resident_fraction, 4), []).append(knot)
    fractions = sorted(groups, reverse=True)
    weights = [float(sum(k.samples for k in groups[f])) for f in fractions]
    means = [sum(k.tpot_s * k.samples for k in groups[f]) / w for f, w in zip(fractions, weights, strict=True)]
    steps = nondecreasing(means, weights)
    return [Point((1.0 - f) * weight_bytes, t, w) for f, t, w in zip(fractions, steps, weights, strict=True)]


def _spreads(knots: list[Knot], points: list[Point], weight_bytes: int) -> list[float]:
    def near(point: Point, knot: Knot) -> float:
        return abs((1.0 - knot.resident_fraction) * weight_bytes - point.streamed)

    return [min(knots, key=lambda k, p=point: near(p, k)).spread_s for point in points]  # type: ignore[misc]


def _vertices(points: list[Point], hinge: Hinge) -> tuple[list[float], list[float]]:
    """The measured points with the knee put between the two that it falls between."""
    xs, ys = [p.streamed for p in points], [p.step_s for p in points]
    knee = hinge.knee_bytes
    if knee is not None and xs[0] < knee < xs[-1]:
        i = bisect_right(xs, knee)
        if xs[i - 1] < knee:
            ys.insert(i, min(max(hinge.flat_s, ys[i - 1]), ys[i]))
            xs.insert(i, knee)
    return xs, ys


def _batch_growth(knots: list[Knot], batch: int, context: int, full_s: float) -> dict[int, float]:
    """Batch -> fully resident step relative to the base batch's, as measured at the base context."""
    full = [k for k in knots if k.resident_fraction >= 1.0 - _SAME and k.context_tokens == context]
    growth = {k.batch: k.tpot_s / full_s for k in full}
    growth[batch] = 1.0
    return growth


def _context_slope(knots: list[Knot], batch: int, context: int, full_s: float) -> float:
    """Seconds per token of context beyond the base context, from fully resident knots; 0 where not measured."""
    other = [
        k for k in knots if k.batch == batch and k.context_tokens != context and k.resident_fraction >= 1.0 - _SAME
    ]
    if not other:
        return 0.0
    far = max(other, key=lambda k: (abs(k.context_tokens - context), k.context_tokens))
    return max(0.0, (far.tpot_s - full_s) / (far.context_tokens - context))
