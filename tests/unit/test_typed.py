"""What people type is read as they mean it, and nothing they type can fail."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from types import FrameType

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from bench import fuzz_typing
from service.ranking import typed as language
from service.ranking.typed import MAX_DEPTH, MAX_LEAVES, All, Any, Node, Not, Phrase, Word, depth, leaves, parse


def w(*texts: str) -> Node:
    """These words, joined with OR where there are several."""
    return Word(texts[0]) if len(texts) == 1 else Any(tuple(map(Word, texts)))


A, B, C, D = map(Word, "abcd")

LANGUAGE: list[tuple[str, Node]] = [
    ("fox bread", w("fox", "bread")),
    ("a OR b c", w("a", "b", "c")),
    ("a AND b", All((A, B))),
    ("a AND b AND c", All((A, B, C))),
    ("a NOT b", All((A, Not(B)))),
    ("a AND NOT b", All((A, Not(B)))),
    ("NOT a AND b", All((B, Not(A)))),
    ("a -b", All((A, Not(B)))),
    ("-b a", All((A, Not(B)))),
    ("a -b -c", All((A, Not(B), Not(C)))),
    ('a -"b c"', All((A, Not(Phrase("b c"))))),
    ("a -title:b", All((A, Not(Word("b", "A"))))),
    ("a -be*", All((A, Not(Word("be", prefix=True))))),
    ("NOT NOT a", A),
    ("a NOT -b", w("a", "b")),
    # NOT before AND before OR, and all of them before words side by side.
    ("a AND b OR c", Any((All((A, B)), C))),
    ("a OR b AND c", Any((A, All((B, C))))),
    ("a b AND c", Any((A, All((B, C))))),
    ("a OR b -c", All((Any((A, B)), Not(C)))),
    ("NOT a b", All((B, Not(A)))),
    # What is only unwanted cannot be looked for, so it is taken from the rest.
    ("a OR NOT b", All((A, Not(B)))),
    ("a OR -b", All((A, Not(B)))),
    ('"a b"', Phrase("a b")),
    ('"  a \n b "', Phrase("a b")),
    ("“a b”", Phrase("a b")),
    ('"a"b', Phrase("a")),
    ('"a b" OR c', Any((Phrase("a b"), C))),
    ("pump*", Word("pump", prefix=True)),
    ("pu* a", Any((Word("pu", prefix=True), A))),
    ("E-44*", Word("E-44", prefix=True)),
    ("हिन्दी*", Word("हिन्दी", prefix=True)),
    ("title:a", Word("a", "A")),
    ("tag:a", Word("a", "B")),
    ("content:a", Word("a", "D")),
    ('title:"a b"', Phrase("a b", "A")),
    ("tag:pu*", Word("pu", "B", prefix=True)),
    ("title:http://x", Word("http://x", "A")),
    ("tag:12:30", Word("12:30", "B")),
    ("title:AND", Word("AND", "A")),
    # Phrases and fields must be there; words beside them only rank, other parts still have to match.
    ('a "b c" d', Phrase("b c")),
    ('"a b" "c d"', All((Phrase("a b"), Phrase("c d")))),
    ("tag:a b", Word("a", "B")),
    ("tag:a b -c", All((Word("a", "B"), Not(C)))),
    ("(tag:a OR tag:b) c", Any((Word("a", "B"), Word("b", "B")))),
    ("tag:a (b AND c)", All((Word("a", "B"), B, C))),
    ("tag:a (b OR c)", All((Word("a", "B"), Any((B, C))))),
    ("tag:a be*", All((Word("a", "B"), Word("be", prefix=True)))),
    ("(a OR b) AND c", All((Any((A, B)), C))),
    ("(a b) AND (c d)", All((Any((A, B)), Any((C, D))))),
    ("a NOT (b OR c)", All((A, Not(Any((B, C)))))),
    ("a -(b c)", All((A, Not(Any((B, C)))))),
    ('a -("b c" d)', All((A, Not(Any((Phrase("b c"), D)))))),
    ("a NOT (b -c)", All((A, Not(All((B, Not(C))))))),
    ("((a)) AND ((b))", All((A, B))),
    ("f(x) AND (a)", All((Word("f(x)"), A))),
]

PLAIN: list[tuple[str, Node]] = [
    ("", Any(())),
    (" \t\n", Any(())),
    ("https://example.org/a-b?c=d", w("https://example.org/a-b?c=d")),
    ("http://x", w("http://x")),
    ("https://x.org/Foo_(bar)", w("https://x.org/Foo_(bar)")),
    ("(see http://x/Foo_(bar)) a", w("see", "http://x/Foo_(bar)", "a")),
    ("12:30", w("12:30")),
    ("a:b", w("a:b")),
    ("sister's", w("sister's")),
    ("ada@example.org", w("ada@example.org")),
    ("550e8400-e29b-41d4-a716-446655440000", w("550e8400-e29b-41d4-a716-446655440000")),
    ("state-of-the-art a - b", w("state-of-the-art", "a", "-", "b")),
    ("C++ C# .NET", w("C++", "C#", ".NET")),
    ("-flag", w("-flag")),
    ("-a -b", w("-a", "-b")),
    ('-"a b"', w('-"a', 'b"')),
    ("--verbose a", w("--verbose", "a")),
    ("-", w("-")),
    ("NOT a", w("NOT", "a")),
    ("NOT a AND NOT b", w("NOT", "a", "AND", "NOT", "b")),
    ("🦊 fox 狐 北京大学", w("🦊", "fox", "狐", "北京大学")),
    ('"unbalanced fox', w('"unbalanced', "fox")),
    ('5" pipe 6" pipe', w('5"', "pipe", '6"', "pipe")),
    ('"" a', w('""', "a")),
    ("(a b", w("a", "b")),
    ("a) b", w("a", "b")),
    ("() a", w("a")),
    ("a AND (!) b", w("a", "AND", "!", "b")),
    (":) a (:", w(":", "a", ":")),
    ("[a] {b}", w("[a]", "{b}")),
    ("' OR 1=1 --", w("'", "OR", "1=1", "--")),
    ("AND", w("AND")),
    ("NOT", w("NOT")),
    ("a AND", w("a", "AND")),
    ("OR a", w("OR", "a")),
    ("a AND OR b", w("a", "AND", "OR", "b")),
    ("a AND AND b", w("a", "AND", "AND", "b")),
    ("a NOT", w("a", "NOT")),
    ("a AND 🦊", w("a", "AND", "🦊")),
    ("salt and pepper or not", w("salt", "and", "pepper", "or", "not")),
    ("ANDROID NOTE ORACLE", w("ANDROID", "NOTE", "ORACLE")),
    ("title:", w("title:")),
    ("title: a", w("title:", "a")),
    ('title:""', w('title:""')),
    ('title:"a', w('title:"a')),
    ("title:-a", w("title:-a")),
    ("title:(a b)", w("title:(a", "b")),
    ("subtitle:a Title:a", w("subtitle:a", "Title:a")),
    ("a* *a a*b", w("a*", "*a", "a*b")),
    ("ab** SELECT *", w("ab**", "SELECT", "*")),
    ("http://x*", w("http://x*")),
    ("C++*", w("C++*")),
]


@pytest.mark.parametrize(("text", "tree"), LANGUAGE)
def test_the_language(text: str, tree: Node) -> None:
    assert parse(text).tree == tree


@pytest.mark.parametrize(("text", "tree"), PLAIN)
def test_everything_else_is_plain_text(text: str, tree: Node) -> None:
    read = parse(text)
    assert read.tree == tree
    assert read.plain


@pytest.mark.parametrize("text", ["a -b", '"a"', "a AND b", "title:a", "ab*", "a title:b", '"a b" c'])
def test_what_is_not_plain(text: str) -> None:
    assert not parse(text).plain


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('what happened to "Pump P-204"', "what happened to Pump P-204"),
        ("tag:urgent pump", "urgent pump"),
        ("a AND (b OR c) -d NOT (e AND f)", "a b c"),
        ("a NOT (b -c)", "a c"),
        ("a -(b NOT (c -d))", "a c"),
        ("a NOT NOT b", "a b"),
        ("pump* E-44* a", "pump a"),
        ("-flag", "-flag"),
        ("a AND", "a AND"),
    ],
)
def test_the_words_that_rank_are_those_that_are_wanted(text: str, words: str) -> None:
    assert parse(text).words == words


def test_the_tree_as_json() -> None:
    assert parse('(pump OR title:"gate valve") AND tag:urg* -content:draft').as_json() == {
        "all": [
            {"any": [{"word": "pump"}, {"phrase": "gate valve", "field": "A"}]},
            {"word": "urg", "field": "B", "prefix": True},
            {"not": {"word": "draft", "field": "D"}},
        ]
    }


def nested(levels: int) -> str:
    """Brackets that alternate between AND and OR, so that none of them is redundant."""
    text = "x0"
    for level in range(1, levels):
        text = f"({text}) {'AND' if level % 2 else 'OR'} x{level}"
    return text


def test_nesting_is_bounded() -> None:
    deepest = parse(nested(MAX_DEPTH))
    assert depth(deepest.tree) == MAX_DEPTH
    assert not deepest.plain
    assert parse(nested(MAX_DEPTH + 1)).plain
    assert parse("(" * 5000 + "a AND b" + ")" * 5000).tree == All((A, B))


def test_the_number_of_leaves_is_bounded_and_no_word_is_lost() -> None:
    assert parse('"a"' * MAX_LEAVES).tree == All((Phrase("a"),) * MAX_LEAVES)
    assert parse('"a"' * (MAX_LEAVES + 1)).plain
    many = [f"w{n}" for n in range(1000)]
    found = list(leaves(parse(" ".join(many)).tree))
    assert len(found) == MAX_LEAVES
    assert " ".join(leaf.text for leaf in found).split() == many


typing = st.text() | st.lists(st.sampled_from([*fuzz_typing.PIECES, *fuzz_typing.EXAMPLES]), max_size=30).map("".join)


@given(typing)
@example("\x00\ud800")
def test_no_text_fails(text: str) -> None:
    read = parse(text)
    json.dumps(read.as_json())
    assert depth(read.tree) <= MAX_DEPTH
    assert sum(1 for _ in leaves(read.tree)) <= MAX_LEAVES


@given(typing)
@example('a -("b c" d)')
def test_no_word_is_lost(text: str) -> None:
    """Every run of letters and digits is looked for, excluded or ranked by, unless it is syntax."""
    read = parse(text)
    kept = " ".join([read.words, *(leaf.text for leaf in leaves(read.tree))])
    runs = set(re.findall(r"[^\W_]+", text))
    assert runs - {"AND", "OR", "NOT", *language.FIELDS} <= set(re.findall(r"[^\W_]+", kept))


@given(typing)
def test_plain_text_read_again_is_the_same(text: str) -> None:
    read = parse(text)
    if read.plain:
        assert parse(read.words).words == read.words


@given(typing)
def test_a_match_always_needs_something_that_is_there(text: str) -> None:
    """An index can only look for what is there. `Not` stands beside something wanted, or deeper in another `Not`."""
    assert fuzz_typing.complaint(text) is None


@given(st.text() | st.lists(st.text(alphabet="abé狐🦊-:'&|!<>_.,\n ")).map(" ".join))
def test_the_short_cut_for_plain_text_changes_nothing(text: str) -> None:
    assume(not language._SYNTAX.search(text))
    assert language._read(text) == parse(text)


def calls(work: Callable[[], object]) -> int:
    """How many functions were called, Python's own too: a measure of work that no busy machine disturbs."""
    count = 0

    def seen(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


UNITS = {*fuzz_typing.PIECES, *fuzz_typing.EXAMPLES, "(a ", "a) ", '"a" ', "-a ", "a AND "}


@pytest.mark.parametrize("unit", sorted(UNITS))
def test_work_grows_no_faster_than_the_text(unit: str) -> None:
    small, large = ((unit * size)[:size] for size in (2048, 32_768))
    assert calls(lambda: parse(large)) <= 17 * calls(lambda: parse(small)) + 1000


def test_a_short_fuzz_run() -> None:
    assert [text for text in fuzz_typing.inputs(5000, seed=2) if fuzz_typing.complaint(text)] == []


QUOTING = 'which of the two bands "The Kills" and Suede was formed first in London'


def test_a_sentence_that_quotes_is_plain_text() -> None:
    assert parse(QUOTING).plain
    assert parse(f"{QUOTING} (or Leeds)").plain


@pytest.mark.parametrize("operator", ["-rock", "AND rock", "title:rock", "roc*", "NOT rock"])
def test_an_operator_makes_a_query_of_a_sentence(operator: str) -> None:
    assert not parse(f"{QUOTING} {operator}").plain


def test_beside_a_few_words_a_phrase_must_be_there() -> None:
    assert not parse('what happened to "Pump P-204"').plain
