"""What the benchmark writes and asks: the same for the same seed, and of the shape it claims."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from statistics import quantiles

import pytest

from bench.corpus import Corpus, make_corpus
from bench.report import Line, markdown, percentiles
from service.api.schemas import DocumentIn, SearchIn


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return make_corpus(600, seed=7, generated=True)


def test_the_same_seed_gives_the_same_documents_and_queries(corpus: Corpus) -> None:
    again = make_corpus(600, seed=7, generated=True)
    assert again == corpus
    assert list(islice(again.queries(), 50)) == list(islice(corpus.queries(), 50))
    assert make_corpus(600, seed=8, generated=True).documents != corpus.documents


def test_an_entity_has_5_to_50_documents_and_a_document_up_to_3_links_to_others(corpus: Corpus) -> None:
    sizes = Counter(name for document in corpus.documents for name in document["entities"])
    assert set(sizes) == set(corpus.entities)
    assert 5 <= min(sizes.values()) <= max(sizes.values()) <= 50
    for document in corpus.documents:
        targets = {link["to"] for link in document["links"]}
        assert 1 <= len(targets) <= 3
        assert document["id"] not in targets
    assert sum(len(document["links"]) for document in corpus.documents) > 2.9 * 600


def test_a_few_words_are_in_most_documents_and_most_words_in_few(corpus: Corpus) -> None:
    held = Counter(word for document in corpus.documents for word in set(document["content"].split()))
    assert max(held.values()) > 600 * 0.9
    assert quantiles(held.values(), n=10)[4] <= 3


def test_the_api_takes_every_document_and_every_query(corpus: Corpus) -> None:
    for document in corpus.documents:
        DocumentIn.model_validate(document)
    for query in islice(corpus.queries(), 200):
        assert any(SearchIn(query=query).query.endswith(name) for name in corpus.entities)


def test_percentiles_lie_between_the_values_around_them() -> None:
    assert percentiles(range(101)) == (50, 95)


def test_the_table_says_whether_a_goal_is_met() -> None:
    rows = [Line("speed", "7 ms"), Line("size", "1", "<= 2", True), Line("cost", "3", "<= 2", False)]
    assert markdown(rows).splitlines() == [
        "| measure | figure | goal |         |",
        "|---------|--------|------|---------|",
        "| speed   | 7 ms   |      |         |",
        "| size    | 1      | <= 2 | met     |",
        "| cost    | 3      | <= 2 | not met |",
    ]
