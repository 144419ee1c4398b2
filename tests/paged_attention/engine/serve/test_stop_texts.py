"""What a stream sends next: the text up to the first stop text, however it comes."""

from hypothesis import given
from hypothesis import strategies as st

from paged_attention.engine.serve.stop_texts import next_event

letters = st.text("abc", max_size=30)
stops = st.lists(st.text("abc", min_size=1, max_size=4), max_size=3)
# Of texts with one length, the one that begins first is whole first, however the text comes.
alike = st.integers(1, 4).flatmap(
    lambda length: st.lists(st.text("abc", min_size=length, max_size=length), max_size=3)
)


def sent(texts: list[str], stop: list[str], reason: str) -> tuple[str, str | None]:
    """Everything that a stream sends whose text grows as `texts` do."""
    total, ended = "", None
    for number, text in enumerate(texts):
        if ended is None:
            last = number == len(texts) - 1
            new, ended = next_event(text, len(total), stop, reason if last else None)
            total += new
    return total, ended


@given(text=letters, stop=alike, data=st.data())
def test_it_is_the_text_up_to_the_first_stop_text_however_it_is_cut(text, stop, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    begins = [text.index(each) for each in stop if each in text]
    expected = (text[: min(begins)], "stop") if begins else (text, "length")
    assert sent([*(text[:cut] for cut in cuts), text], stop, "length") == expected


@given(text=letters, stop=stops)
def test_the_first_that_is_whole_ends_it(text, stop):
    """Letter by letter."""
    ends = [(text.index(each) + len(each), text.index(each)) for each in stop if each in text]
    expected = (text[: min(ends)[1]], "stop") if ends else (text, "length")
    texts = [text[:length] for length in range(len(text) + 1)]
    assert sent(texts, stop, "length") == expected


@given(text=letters, stop=stops)
def test_nothing_is_held_back_that_cannot_become_a_stop_text(text, stop):
    new, reason = next_event(text, 0, stop, None)
    if reason is None:
        held = text[len(new) :]
        assert text.startswith(new)
        assert not held or any(each.startswith(held) for each in stop)


def test_the_stop_text_that_begins_first_counts():
    assert next_event("one two three", 4, ["three", "two"], None) == ("", "stop")
    assert next_event("one two three", 0, ["three", "e t"], None) == ("on", "stop")


def test_an_end_gives_what_may_be_half_of_a_character():
    assert next_event("a\ufffd", 1, [], None) == ("", None)
    assert next_event("a\ufffd", 1, [], "length") == ("\ufffd", "length")
