"""Suggestions of several kinds in one list."""

from __future__ import annotations

from service.model import Suggestion
from service.ranking.suggestions import woven


def some(kind: str, *texts: str) -> list[Suggestion]:
    return [Suggestion(text, kind, 1) for text in texts]


def test_kinds_take_turns_and_one_that_ends_leaves_the_rest_to_the_others() -> None:
    found = [*some("term", "ax", "ay", "az"), *some("title", "A"), *some("entity", "Ada", "Abe")]
    assert [each.text for each in woven(found, "a", 10)] == ["Ada", "A", "ax", "Abe", "ay", "az"]
    assert [each.text for each in woven(found, "a", 4)] == ["Ada", "A", "ax", "Abe"]


def test_what_a_search_takes_for_the_same_comes_once_as_its_first_kind() -> None:
    found = [*some("term", "ada", "adam"), *some("entity", "ADA"), *some("title", "Ada")]
    assert woven(found, "ad", 10) == [*some("entity", "ADA"), *some("term", "adam")]


def test_only_a_term_comes_with_the_words_before_it() -> None:
    found = [*some("term", "panel"), *some("title", "Solar panes")]
    assert [each.text for each in woven(found, "Solar pan", 10)] == ["Solar panes", "Solar panel"]
