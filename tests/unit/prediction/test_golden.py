"""Formulas against published and reproduced numbers (docs/planning.md names the sources)."""

from __future__ import annotations

import pytest

from estiba_scheduler.prediction import kv_bytes_per_token
from estiba_scheduler.prediction.host_execution import ratio_from, slowdown
from estiba_scheduler.prediction.reload import transfer_s
from estiba_scheduler.prediction.streaming import break_even_intensity, knee_fraction, step_s

MIB = 1024**2


@pytest.mark.parametrize(
    ("layers", "kv_heads", "mib"),
    [(36, 2, 0.0352), (36, 8, 0.1406), (48, 8, 0.1875)],
)
def test_kv_bytes_per_token_match_the_published_models(layers: int, kv_heads: int, mib: float) -> None:
    assert kv_bytes_per_token(layers, kv_heads, 128, 2) / MIB == pytest.approx(mib, rel=0.01)


def test_break_even_intensity_of_an_h100_on_pcie5() -> None:
    assert break_even_intensity(0.60 * 756e12, 0.89 * 31.5e9) == pytest.approx(16_180, rel=0.001)


def test_the_knee_of_a_diffusion_block_falls_at_119_frames() -> None:
    """Wan2.2 TI2V 5B: the frames at which the block's compute just hides its 520 MB."""
    d, f, context, prefetch = 3072, 14336, 512, 520e6

    def flops(frames: float) -> float:
        s = 220 * (frames + 3)
        attention = 8 * s * d**2 + 4 * s**2 * d
        cross = 4 * s * d**2 + 4 * context * d**2 + 4 * s * context * d
        return (attention + cross + 4 * s * d * f) / 2  # two GPUs share a block

    compute = flops(119.1) / (0.60 * 756e12)
    assert compute == pytest.approx(prefetch / (0.89 * 31.5e9), rel=0.005)
    assert knee_fraction(compute, 0.89 * 31.5e9, int(prefetch)) == pytest.approx(0.0, abs=0.005)


@pytest.mark.parametrize(
    ("gigabytes", "fixed", "per_gb", "measured"),
    [
        (5.9, 1.96, 0.192, 2.98),
        (15.6, 1.96, 0.192, 5.16),
        (28.3, 1.96, 0.192, 7.31),
        (5.9, 1.84, 0.138, 2.62),
        (15.6, 1.84, 0.138, 4.06),
        (28.3, 1.84, 0.138, 5.73),
    ],
)
def test_reloading_is_a_fixed_time_and_bytes_over_bandwidth(
    gigabytes: float, fixed: float, per_gb: float, measured: float
) -> None:
    assert transfer_s(fixed, gigabytes * 1e9, 1e9 / per_gb) == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize(("speed", "ratio"), [(0.6, 7.7), (0.8, 3.5)])
def test_layers_on_the_host_slow_decoding_by_amdahl(speed: float, ratio: float) -> None:
    assert ratio_from(0.9, speed) == pytest.approx(ratio, rel=0.02)
    assert 1 / slowdown(0.9, ratio) == pytest.approx(speed, rel=0.02)


@pytest.mark.parametrize(("link_gib_s", "slower"), [(0.5, 3.3), (1.0, 1.6)])
def test_half_of_a_small_model_streamed_slows_as_was_measured(link_gib_s: float, slower: float) -> None:
    """SmolLM2-135M in fp32, half of its 538 MB resident; 0.16 s of compute a step explains both rates."""
    compute, streamed = 0.16, 0.5 * 538e6
    assert step_s(compute, streamed, link_gib_s * 1024**3) / compute == pytest.approx(slower, rel=0.08)
