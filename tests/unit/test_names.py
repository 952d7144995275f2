"""Names are cut into the same words when they are indexed and when they are asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.ranking.names import MAX_LENGTH, MAX_WORDS, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ada Lovelace", ("ada", "lovelace")),
        ("Café Zoë", ("cafe", "zoe")),
        ("The Analytical Engine", ("analytical", "engine")),
        ("to be or", ("to", "be", "or")),
        ("AT&T's 5G-network_v2", ("t", "s", "5g", "network", "v2")),
        ("STRASSE straße", ("strasse", "strasse")),
        ("北京 大学", ("北京", "大学")),
        ("ﬁne ℡", ("fine", "tel")),
        ("İstanbul", ("istanbul",)),
        ("", ()),
        ("*|@{}()\"'\\~-$`\0", ()),
        ("👾", ()),
    ],
)
def test_words_of_a_name(text: str, expected: tuple[str, ...]) -> None:
    assert words(text) == expected


def test_a_hostile_text_is_bounded() -> None:
    found = words(" ".join(["x" * 1000] * 1000))
    assert len(found) == MAX_WORDS
    assert {len(word) for word in found} == {MAX_LENGTH}


@given(st.text())
def test_words_are_letters_and_digits_only_and_stay_the_same_when_cut_again(text: str) -> None:
    found = words(text)
    assert all(word.isalnum() for word in found)
    assert words(" ".join(found)) == found
