"""`braid eval` without a Braid: reading collections, and measures worked by hand."""

from __future__ import annotations

import json
import sys
from math import log2
from pathlib import Path
from typing import Any

import pytest

from service.api.schemas import DocumentIn, SearchIn
from service.errors import SetupError
from service.evaluation.client import shortened
from service.evaluation.collection import Question, read_collection, spread
from service.evaluation.measures import Quality, quality
from service.evaluation.run import latency, make_ways
from service.evaluation.throwaway import tuning
from service.ui.terminal import figures

CORPUS = [
    {"_id": "kettle", "title": "A copper kettle", "text": "It boils.", "metadata": {"room": "kitchen"}},
    {"_id": "airship", "text": "It hovers.", "metadata": {"room": "hangar"}},
    {"_id": "mute", "title": "", "text": "", "metadata": {"room": "hangar"}},
]
QUERIES = [
    {"_id": "q1", "text": "what boils", "metadata": {"room": "kitchen"}},
    {"_id": "q2", "text": "what hovers", "metadata": {"room": "hangar"}},
    {"_id": "q3", "text": "never judged", "metadata": {"room": "hangar"}},
]
QRELS = "query-id\tcorpus-id\tscore\nq1\tkettle\t2\nq1\tairship\t0\nq2\tairship\t1\nq3\tairship\t0\n"
EDGES = [{"source": "kettle", "target": "airship", "type": "lifts", "strength": 0.5}]


def jsonl(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "corpus.jsonl").write_text(jsonl(CORPUS))
    (tmp_path / "queries.jsonl").write_text(jsonl(QUERIES))
    (tmp_path / "edges.jsonl").write_text(jsonl(EDGES))
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels/test.tsv").write_text(QRELS)
    return tmp_path


def test_ndcg_recall_and_mrr_are_those_worked_by_hand() -> None:
    judgements = {"a": {"best": 2, "good": 1, "bad": 0}, "b": {"only": 1}}
    found = quality(judgements, {"a": ["bad", "best", "good"], "b": ["x", "y", "z", "only"]}, limit=3)
    of_a = (2 / log2(3) + 1 / log2(4)) / (2 / log2(2) + 1 / log2(3))
    of_b = 1 / log2(5)
    assert found.ndcg == pytest.approx((of_a + of_b) / 2)
    assert found.recall == pytest.approx((1 + 0) / 2), "the fourth place is beyond a limit of three"
    assert found.mrr == pytest.approx((1 / 2 + 1 / 4) / 2)


def test_the_eleventh_place_counts_for_recall_alone() -> None:
    ten = [f"wrong-{number}" for number in range(10)]
    assert quality({"a": {"right": 1}}, {"a": [*ten, "right"]}, limit=100) == Quality(ndcg=0, recall=1, mrr=0)


def test_a_query_that_finds_nothing_counts_as_zero() -> None:
    judgements = {"a": {"right": 1}, "b": {"right": 1}}
    assert quality(judgements, {"a": ["right"], "b": []}, limit=10) == Quality(0.5, 0.5, 0.5)
    assert quality(judgements, {"a": ["right"]}, limit=10) == Quality(0.5, 0.5, 0.5)


@pytest.mark.parametrize("order", [["a", "z"], ["z", "a"]])
def test_the_order_is_the_callers_whatever_the_ids_are(order: list[str]) -> None:
    assert quality({"q": {order[0]: 1}}, {"q": order}, limit=10).mrr == 1


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    with pytest.raises(SetupError, match=r"^the measures are an extra: pip install 'braid-search\[eval\]'$"):
        quality({}, {}, 10)


def test_a_collection_is_read_as_the_api_takes_it(folder: Path) -> None:
    collection = read_collection(folder)
    assert collection.name == folder.name
    assert [DocumentIn.model_validate(each).id for each in collection.documents] == ["kettle", "airship"]
    assert collection.documents[1] == {
        "id": "airship",
        "namespace": "default",
        "title": "",
        "content": "It hovers.",
        "metadata": {"room": "hangar"},
    }
    assert collection.links == EDGES
    assert collection.questions == [Question("q1", "what boils", "default"), Question("q2", "what hovers", "default")]
    assert collection.judgements == {"q1": {"kettle": 2, "airship": 0}, "q2": {"airship": 1}}


def test_edges_and_the_heading_of_the_judgements_may_be_left_out(folder: Path) -> None:
    (folder / "edges.jsonl").unlink()
    (folder / "qrels/test.tsv").write_text(QRELS.partition("\n")[2])
    collection = read_collection(folder)
    assert collection.links == []
    assert list(collection.judgements) == ["q1", "q2"]


def test_another_split_has_its_own_judgements(folder: Path) -> None:
    (folder / "qrels/dev.tsv").write_text("query-id\tcorpus-id\tscore\nq3\tairship\t1\n")
    assert read_collection(folder, split="dev").judgements == {"q3": {"airship": 1}}


def test_within_a_field_each_value_is_a_namespace(folder: Path) -> None:
    collection = read_collection(folder, within="room")
    assert [document["namespace"] for document in collection.documents] == ["kitchen", "hangar"]
    assert [question.namespace for question in collection.questions] == ["kitchen", "hangar"]


def test_fewer_queries_are_evenly_spread_and_keep_their_judgements(folder: Path) -> None:
    questions = [Question(str(number), "", "") for number in range(10)]
    assert [question.id for question in spread(questions, 4)] == ["0", "2", "5", "7"]
    assert spread(questions, 10) is spread(questions, None) is questions
    assert list(read_collection(folder, queries=1).judgements) == ["q1"]


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("corpus.jsonl", '{"_id": "a", "text": "x"}\n{oops', "line 2: is not valid JSON"),
        ("corpus.jsonl", "[1]\n", "line 1: is not a JSON object"),
        ("corpus.jsonl", '\n{"text": "x"}\n', "line 2: `_id` must be a text, and not empty"),
        ("corpus.jsonl", '{"_id": "a", "title": 7}', "line 1: `title` must be a text"),
        ("corpus.jsonl", '{"_id": "a", "metadata": [1]}', "line 1: `metadata` must be an object"),
        ("corpus.jsonl", '{"_id": "a", "text": "x"}\n' * 2, "line 2: the document 'a' has come before"),
        ("corpus.jsonl", "\n", "holds no documents"),
        ("queries.jsonl", '{"_id": "q1"}', "line 1: `text` must be a text, and not empty"),
        ("queries.jsonl", '{"_id": "q1", "text": "x"}', "lacks the query 'q2', which has judgements"),
        ("qrels/test.tsv", QRELS + "q1 kettle 1", "line 6: has 1 columns"),
        ("qrels/test.tsv", QRELS + "q1\tkettle\tgood", "line 6: the score must be a whole number, not 'good'"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\tkettle\t0\n", "judges no document right for any query"),
        ("edges.jsonl", '{"source": "kettle"}', "line 1: `target` must be a text, and not empty"),
    ],
)
def test_a_bad_file_is_named_with_its_line(folder: Path, file: str, content: str, complaint: str) -> None:
    (folder / file).write_text(content)
    with pytest.raises(SetupError) as refused:
        read_collection(folder)
    said = str(refused.value)
    assert said.startswith(str(folder / file))
    assert complaint in said
    assert "\n" not in said


@pytest.mark.parametrize("file", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
def test_a_missing_file_is_named(folder: Path, file: str) -> None:
    (folder / file).unlink()
    with pytest.raises(SetupError, match=r"^cannot read .+: No such file or directory$") as refused:
        read_collection(folder)
    assert str(folder / file) in str(refused.value)


def test_a_document_without_the_field_to_stay_within_is_named(folder: Path) -> None:
    with pytest.raises(SetupError, match=r"queries\.jsonl, line 1: `metadata` has no text called 'floor'$"):
        read_collection(folder, within="floor")


def test_every_tier_is_asked_alone_and_knocked_out() -> None:
    assert make_ways(["keyword", "graph"]) == {
        "keyword alone": {"keyword": 1, "graph": 0},
        "graph alone": {"keyword": 0, "graph": 1},
        "fused": None,
        "fused without keyword": {"keyword": 0},
        "fused without graph": {"graph": 0},
    }
    assert list(make_ways(["keyword"], knock_out=False)) == ["keyword alone", "fused"]


def test_percentiles_of_one_search_and_of_many() -> None:
    assert (latency([7.0]).p50_ms, latency([7.0]).p95_ms) == (7, 7)
    assert (latency(range(101)).p50_ms, latency(range(101)).p95_ms) == (50, 95)


@pytest.mark.parametrize("text", ["word " * 70, "w" * 2000, "äöü " * 400])
def test_a_query_is_shortened_to_what_the_api_takes(text: str) -> None:
    assert SearchIn(query=shortened(text)).query
    assert text.startswith(shortened(text))


def test_a_query_that_fits_stays_as_it_is() -> None:
    assert shortened(' "two  spaces" ') == ' "two  spaces" '


def test_a_throw_away_braid_searches_as_we_would_but_never_on_real_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAID_EMBEDDER", "none")
    for engine in ("POSTGRES_URL", "POSTGRES_ADMIN_URL", "QDRANT_URL", "FALKORDB_URL"):
        monkeypatch.setenv(f"BRAID_{engine}", "somewhere real")
    assert tuning()["BRAID_EMBEDDER"] == "none"
    assert "somewhere real" not in tuning().values()


def test_answers_that_lacked_a_tier_and_shortened_queries_are_said() -> None:
    way = {"ndcg@10": 0.5, "recall@20": 0.5, "mrr@10": 0.5, "p50_ms": 1.0, "p95_ms": 2.0}
    report = {
        "collection": "c",
        "documents": 1,
        "links": 0,
        "queries": 1,
        "limit": 20,
        "weights": {"keyword": 1.0},
        "ways": {"fused": way},
        "searches": 8,
        "degraded": 3,
        "shortened": 2,
    }
    said = [str(shown) for shown in list(figures(report))[1:]]
    assert any("3 of 8 answers lacked a tier" in line for line in said)
    assert any("2 queries were longer" in line for line in said)
    calm = list(figures(report | {"degraded": 0, "shortened": 0}))
    assert len(calm) == 2
