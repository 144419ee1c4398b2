"""Cards, as text and as HTML."""

import re

import pytest

from lessons_lib.display import Card, as_html


@pytest.mark.parametrize(
    "tone, sign, colour",
    [("passed", "✓", "#117733"), ("failed", "✗", "#b35900"), ("note", "›", "#3465a4")],
)
def test_a_card_has_a_sign_and_a_colour_for_its_tone(tone, sign, colour):
    card = Card("Title", "one\n  two", tone)
    assert repr(card) == f"{sign} Title\n  one\n    two"
    assert re.search("solid (#[0-9a-f]{6});", card._repr_html_())[1] == colour
    assert repr(Card("Title", tone=tone)) == f"{sign} Title"
    assert "Title</div></div>" in Card("Title", tone=tone)._repr_html_()


@pytest.mark.parametrize(
    "body, shown",
    [
        ("a `b` c `d` e", "a <code>b</code> c <code>d</code> e"),
        ("`a`", "<code>a</code>"),
        ("no code", "no code"),
        ("one ` alone", "one ` alone"),
        ("a `b` and ` c", "a `b` and ` c"),
        ("``", "<code></code>"),
        ("`<`", "<code>&lt;</code>"),
    ],
)
def test_words_between_backticks_are_code(body, shown):
    assert as_html(body) == f'<div style="margin:.2em 0">{shown}</div>'


def test_a_name_in_backticks_is_code_in_a_title_too():
    shown = Card("There is no `gorw` <b>")._repr_html_()
    assert "There is no <code>gorw</code> &lt;b&gt;" in shown


def test_lines_of_code_beside_each_other_are_one_block():
    html = re.sub(' style="[^"]*"', "", as_html("a\nb\n  c\n    d & `e`\n\nf\n  g"))
    assert html == (
        "<div>a</div><div>b</div><pre>c\n  d &amp; `e`</pre>"
        "<div></div><div>f</div><pre>g</pre>"
    )
