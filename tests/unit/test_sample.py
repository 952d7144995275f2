"""The sample documents hang together, so that `braid` has something to show on its first run."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime

import pytest

from service.model import TIERS
from service.sample import SHOWCASE, documents

DOCUMENTS = list(documents())
BY_ID = {document["id"]: document for document in DOCUMENTS}
FIELDS = {
    *("id", "namespace", "title", "content", "type", "tags", "entities"),
    *("metadata", "confidence", "priority", "created_at", "links"),
}


def words(*texts: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", " ".join(texts).lower())) - {"a", "and"}


def searchable(document: dict[str, object]) -> set[str]:
    return words(str(document["title"]), str(document["content"]), str(document["tags"]))


def test_there_are_enough_documents_to_search_and_few_enough_to_load_at_once() -> None:
    assert 60 <= len(DOCUMENTS) <= 120


def test_ids_are_unique() -> None:
    assert len(BY_ID) == len(DOCUMENTS)


def test_texts_are_not_repeated() -> None:
    assert len({document["content"] for document in DOCUMENTS}) == len(DOCUMENTS)


def test_several_namespaces_are_well_filled() -> None:
    sizes = Counter(document["namespace"] for document in DOCUMENTS)
    assert len(sizes) >= 3
    assert min(sizes.values()) >= 10


def test_every_document_has_every_field() -> None:
    assert all(document.keys() == FIELDS for document in DOCUMENTS)


def test_every_link_leads_to_another_document() -> None:
    for document in DOCUMENTS:
        for link in document["links"]:
            assert link["to"] in BY_ID
            assert link["to"] != document["id"]
            assert 0 < link["strength"] <= 1


def test_the_links_are_of_many_types() -> None:
    types = {link["type"] for document in DOCUMENTS for link in document["links"]}
    assert types >= {"supports", "part_of", "depends_on", "related_to", "contradicts", "evolved_from"}


def test_the_documents_are_spread_over_three_years() -> None:
    years = Counter(datetime.fromisoformat(document["created_at"]).year for document in DOCUMENTS)
    assert set(years) == {2024, 2025, 2026}


def test_every_tier_has_its_showcase() -> None:
    counts = Counter(tier for _, tier, _ in SHOWCASE)
    assert all(counts[tier] >= 2 for tier in TIERS)
    assert set(counts) <= set(TIERS)


@pytest.mark.parametrize(("query", "tier", "document"), SHOWCASE)
def test_the_showcase_is_what_it_says(query: str, tier: str, document: str) -> None:
    """A keyword showcase holds every word of its query; a vector or graph one holds none."""
    shared = words(query) & searchable(BY_ID[document])
    assert shared == (words(query) if tier == "keyword" else set())


@pytest.mark.parametrize(("query", "document"), [(query, id_) for query, tier, id_ in SHOWCASE if tier == "graph"])
def test_a_graph_showcase_carries_the_entity_that_its_query_names(query: str, document: str) -> None:
    assert query in BY_ID[document]["entities"]
