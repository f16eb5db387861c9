"""Which blocks are offloaded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from estiba_agent.offload import blocks_to_offload, offloaded_blocks


@given(st.integers(1, 64), st.data())
def test_offloaded_blocks_are_evenly_spread(of: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, of))
    chosen = offloaded_blocks(count, of)
    assert len(set(chosen)) == count
    assert list(chosen) == sorted(chosen)
    assert chosen[0] >= 0
    assert chosen[-1] < of
    around = [b - a for a, b in zip(chosen, [*chosen[1:], chosen[0] + of], strict=True)]
    assert max(around) - min(around) <= 1


@given(st.lists(st.integers(1, 100), min_size=1, max_size=40), st.integers(-50, 4000))
def test_no_more_blocks_stay_than_fit_and_no_fewer(sizes: list[int], room: int) -> None:
    chosen = blocks_to_offload(sizes, room)
    stays = sum(sizes) - sum(sizes[i] for i in chosen)
    assert stays <= max(0, room)
    if chosen:
        one_more = offloaded_blocks(len(chosen) - 1, len(sizes))
        assert sum(sizes) - sum(sizes[i] for i in one_more) > room
