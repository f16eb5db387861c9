"""Text comes out as it would from all tokens at once, and never with half a character."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from estiba_agent.engines.torch.detokenizer import REPLACEMENT, Detokenizer

from .scripted_runtime import END, FIRST_PIECE, ScriptedTokenizer


def fed(data: bytes) -> list[str]:
    detokenizer = Detokenizer(ScriptedTokenizer())
    return [*(detokenizer.feed(token) for token in data), detokenizer.flush()]


def test_a_character_split_over_tokens_is_shown_when_it_is_whole() -> None:
    assert fed("é!".encode()) == ["", "é", "!", ""]


def test_an_emoji_split_over_four_tokens_is_shown_when_it_is_whole() -> None:
    assert fed("🚢".encode()) == ["", "", "", "🚢", ""]


def test_a_character_that_is_never_finished_is_shown_as_replaced_at_the_end() -> None:
    assert fed(b"ok\xf0\x9f")[-1] == REPLACEMENT


def test_bytes_that_are_no_text_are_not_held_back_for_ever() -> None:
    assert "".join(fed(b"\xff" * 40)[:-1])


def test_special_tokens_have_no_text() -> None:
    detokenizer = Detokenizer(ScriptedTokenizer())
    assert [detokenizer.feed(token) for token in (ord("a"), END, ord("b"))] == ["a", "", "b"]


def test_the_space_that_a_decoder_strips_from_a_text_s_first_token_is_there_between_words() -> None:
    class Stripping(ScriptedTokenizer):
        def decode(self, token_ids: list[int], *, skip_special_tokens: bool = True) -> str:
            return super().decode(token_ids).removeprefix(" ")

    detokenizer = Detokenizer(Stripping((b" one", b" two", b" three")))
    words = range(FIRST_PIECE, FIRST_PIECE + 3)
    assert [detokenizer.feed(token) for token in words] == ["one", " two", " three"]


@given(st.text(max_size=30))
def test_piece_by_piece_is_the_whole_text(text: str) -> None:
    assert "".join(fed(text.encode())) == text
