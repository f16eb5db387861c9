"""Amounts as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from estiba_scheduler.quantities import format_bytes, format_seconds, parse_bytes, parse_rate


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("700MiB", 700 * 2**20),
        ("700Mi", 700 * 2**20),
        ("1.5GiB", 3 * 2**29),
        ("24G", 24 * 10**9),
        ("24 GB", 24 * 10**9),
        ("512", 512),
        ("512B", 512),
        ("100k", 100_000),
        (4096, 4096),
        ("0", 0),
    ],
)
def test_amounts_of_memory_are_understood(text: str | int, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    "text", ["24 gigs", "24gigs", "a lot", "", "-3GiB", "1e9", "5m", "1.2.3G", "9" * 80, "٣G", 1.5, True, None]
)
def test_what_is_no_amount_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(ValueError, match=r"write|0 to"):
        parse_bytes(text)  # type: ignore[arg-type]


def test_a_unit_that_was_nearly_right_is_corrected() -> None:
    with pytest.raises(ValueError, match="write 24GiB"):
        parse_bytes("24 gigs")


def test_rates_are_bytes_per_second() -> None:
    assert parse_rate("1GiB/s") == 2**30
    assert parse_rate("800 MB/s") == 800e6
    for bad in ("1GiB", "1GiB/h", "0/s", "/s"):
        with pytest.raises(ValueError, match=r"GiB/s|memory"):
            parse_rate(bad)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (257 * 2**20, "257 MiB"),
        (1.46 * 2**30, "1.46 GiB"),
        (2**30 - 1, "1 GiB"),
        (-2048, "-2 KiB"),
    ],
)
def test_bytes_are_shown_with_three_digits(count: float, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.043, "43 ms"),
        (0.0012, "1.2 ms"),
        (1.234, "1.23 s"),
        (65, "65 s"),
        (312, "5 min 12 s"),
        (7380, "2 h 3 min"),
        (float("inf"), "for ever"),
    ],
)
def test_seconds_are_shown_as_people_say_them(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@given(st.integers(0, 2**50))
def test_what_is_shown_is_read_back_within_its_digits(count: int) -> None:
    assert abs(parse_bytes(format_bytes(count)) - count) <= 0.006 * count + 1
