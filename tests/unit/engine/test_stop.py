"""Stop strings end an answer exactly where they begin, however the text is cut into pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from estiba_agent.engines.torch.stop import StopScanner


def shown(pieces: list[str], *stops: str) -> tuple[str, bool]:
    scanner = StopScanner(stops)
    text = "".join(scanner.feed(piece) for piece in pieces)
    if not scanner.stopped:
        text += scanner.flush()
    return text, scanner.stopped


def test_the_stop_string_itself_is_never_shown() -> None:
    assert shown(["Hello STOP world"], "STOP") == ("Hello ", True)


def test_a_stop_string_across_pieces_is_found() -> None:
    assert shown(["Hello S", "T", "OP world"], "STOP") == ("Hello ", True)


def test_the_beginning_of_a_stop_string_is_shown_once_it_turns_out_to_be_none() -> None:
    assert shown(["Hello S", "T", "ART"], "STOP") == ("Hello START", False)


def test_the_beginning_of_a_stop_string_at_the_end_is_shown() -> None:
    assert shown(["Hello ST"], "STOP") == ("Hello ST", False)


def test_the_earliest_of_several_stop_strings_wins() -> None:
    assert shown(["one two three"], "three", "two") == ("one ", True)


def test_without_stop_strings_nothing_is_held_back() -> None:
    scanner = StopScanner(())
    assert scanner.feed("text") == "text"


@given(st.lists(st.text("ab", max_size=5), max_size=20), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_any_cut_shows_what_the_whole_text_would_show(pieces: list[str], stops: list[str]) -> None:
    whole = "".join(pieces)
    ends = [at for stop in stops if (at := whole.find(stop)) >= 0]
    text, stopped = shown(pieces, *stops)
    assert stopped == bool(ends)
    # cut finely, a stop string that is complete first wins over one that begins earlier and ends later
    assert whole.startswith(text)
    assert not any(stop in text for stop in stops)
    assert stopped or text == whole
