"""Highlights: what is marked, which fragments are chosen, and that nothing of a text gets through as markup."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.ranking.highlight import LENGTH, LOOKED_AT, fragments, marked, patterns_of, words_in
from service.ranking.typed import parse

STOP = {"the", "of", "a"}


def alike(query: str, *texts: str) -> dict[str, set[str]]:
    """A language in which words mean the same without a final s, and a few mean nothing."""
    wanted = [word for pattern in patterns_of(parse(query)) for word in pattern.words if word not in STOP]
    words = {word for text in (query, *texts) for word in words_in(text)}
    return {word: {w for w in wanted if w.rstrip("s") == word.rstrip("s")} for word in words - STOP}


def title(query: str, text: str) -> str:
    return marked(text, patterns_of(parse(query)), alike(query, text))


def content(query: str, text: str) -> list[str]:
    return fragments(text, patterns_of(parse(query)), alike(query, text))


@pytest.mark.parametrize(
    ("query", "text", "shown"),
    [
        ("pump", "Pumps and a PUMP.", "<mark>Pumps</mark> and a <mark>PUMP</mark>."),
        ("the pump", "The pump", "The <mark>pump</mark>"),
        ('"night shift"', "A shift at night, a night shift", "A shift at night, a <mark>night shift</mark>"),
        ('"state of the art"', "the State of the Arts", "the <mark>State of the Arts</mark>"),
        ("night shift", "shift, night", "<mark>shift</mark>, <mark>night</mark>"),
        ("temp*", "Temperature of a template", "<mark>Temperature</mark> of a <mark>template</mark>"),
        ("pump -valve", "pump and valve", "<mark>pump</mark> and valve"),
        ("pump NOT (valve OR gate)", "gate valve pump", "gate valve <mark>pump</mark>"),
        ("title:pump content:valve", "pump valve", "<mark>pump</mark> valve"),
        ("tag:pump valve", "pump valve", "pump <mark>valve</mark>"),
        ("P-204", "Pump P-204, not P or 204", "Pump <mark>P-204</mark>, not P or 204"),
        ("P-204", "part 204", "part <mark>204</mark>"),
        ("sister's", "my sisters", "my <mark>sisters</mark>"),
        ("TCP/IP", "the TCP/IP stack", "the <mark>TCP/IP</mark> stack"),
        ("北京 🦊", "北京 🦊", "<mark>北京</mark> 🦊"),
        ("pump", "nothing here", "nothing here"),
    ],
)
def test_what_is_marked(query: str, text: str, shown: str) -> None:
    assert title(query, text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<script>alert('pump')</script>", "&lt;script&gt;alert(&#x27;<mark>pump</mark>&#x27;)&lt;/script&gt;"),
        ("<mark>pump</mark>", "&lt;mark&gt;<mark>pump</mark>&lt;/mark&gt;"),
        ('" onload="pump', "&quot; onload=&quot;<mark>pump</mark>"),
        ("a & pump &amp;", "a &amp; <mark>pump</mark> &amp;amp;"),
    ],
)
def test_markup_in_a_text_is_text(text: str, shown: str) -> None:
    assert title("pump", text) == shown
    assert content("pump", text) == [shown]


@given(st.text(), st.text())
def test_the_marks_are_the_only_markup_and_all_of_a_title_is_there(query: str, text: str) -> None:
    shown = title(query, text)
    bare = re.sub("</?mark>", "", shown)
    assert not re.search("[<>\"']", bare)
    assert html.unescape(bare) == " ".join(text.split())


@given(st.text(alphabet="ab <&\n", max_size=900), st.sampled_from(["a", "ab", '"a b"', "aa* b", "zz"]))
def test_fragments_are_parts_of_the_text_not_much_longer_than_meant(text: str, query: str) -> None:
    line = " ".join(text.split())
    for fragment in content(query, text):
        bare = html.unescape(re.sub("</?mark>", "", fragment)).removeprefix("… ").removesuffix(" …")
        assert bare in line
        assert len(bare) <= LENGTH + max(map(len, line.split()), default=0)


def test_the_fragment_that_shows_most_of_the_query_is_chosen() -> None:
    text = f"pump pump pump. {'word ' * 100} the pump has a valve. {'word ' * 100} pump"
    (fragment,) = content("pump valve", text)
    assert fragment.count("<mark>") == 2
    assert "the <mark>pump</mark> has a <mark>valve</mark>." in fragment
    assert fragment.startswith("… word")
    assert fragment.endswith("word …")


def test_a_second_fragment_shows_what_the_first_does_not() -> None:
    text = f"{'word ' * 50} pump {'word ' * 100} valve {'word ' * 50}"
    first, second = content("pump valve", text)
    assert "<mark>pump</mark>" in first
    assert "<mark>valve</mark>" in second


def test_without_a_match_the_beginning_is_shown() -> None:
    assert content("pump", "Nothing here.") == ["Nothing here."]
    (fragment,) = content("pump", "word " * 1000)
    assert fragment.endswith("word …")
    assert content("pump", " ") == []


def test_a_text_is_looked_at_up_to_a_bound() -> None:
    assert content("pump", f"{'word ' * (LOOKED_AT // 5)}pump")[0].startswith("word")
    assert content("pump", "x" * 10 * LOOKED_AT)[0] == "x" * LENGTH + " …"
