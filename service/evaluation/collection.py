"""A test collection in BEIR layout: documents, queries, and who judged which document right for which query.

corpus.jsonl      {"_id", "title", "text", "metadata"}    the last two may be left out
queries.jsonl     {"_id", "text", "metadata"}             the last may be left out
qrels/SPLIT.tsv   query-id, corpus-id, score              with tabs between, below a heading
edges.jsonl       {"source", "target", "type", "strength"}    the whole file may be left out, and the last two
*.npz             corpus_ids, corpus, query_ids, queries      embeddings made elsewhere, only where they are asked for
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import orjson

from service.errors import SetupError

NAMESPACE = "default"
Judgements = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Question:
    """A query with judgements, and the namespace its answers are in."""

    id: str
    text: str
    namespace: str
    vector: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class Collection:
    """Everything one evaluation needs; documents and links as the API takes them."""

    name: str
    documents: Sequence[dict[str, Any]]
    links: Sequence[dict[str, Any]]
    questions: Sequence[Question]
    judgements: Judgements


def read_collection(
    folder: Path,
    *,
    split: str = "test",
    within: str | None = None,
    queries: int | None = None,
    vectors: Path | None = None,
) -> Collection:
    """The collection in a folder. `within` names a metadata field that queries and documents share: each of its values
    becomes a namespace, and a query is asked in its own. `queries` takes so many of them, evenly spread. `vectors` is
    a file of embeddings to use in place of the service's own.
    """
    judgements = _judgements(folder / "qrels" / f"{split}.tsv")
    questions = _questions(folder / "queries.jsonl", judgements, within)
    documents = _documents(folder / "corpus.jsonl", within)
    edges = folder / "edges.jsonl"
    chosen = spread(questions, queries)
    if vectors is not None:
        documents, chosen = _with_vectors(vectors, documents, chosen)
    return Collection(
        name=folder.resolve().name,
        documents=documents,
        links=_links(edges) if edges.exists() else [],
        questions=chosen,
        judgements={question.id: judgements[question.id] for question in chosen},
    )


def spread(questions: Sequence[Question], count: int | None) -> Sequence[Question]:
    """`count` of them, evenly spread; all where there are no more."""
    if count is None or count >= len(questions):
        return questions
    return [questions[number * len(questions) // count] for number in range(count)]


def dimension_of(vectors: Path) -> int:
    """How many numbers each embedding in a file has."""
    return int(_arrays(vectors)["corpus"].shape[1])


def _with_vectors(
    path: Path, documents: Sequence[dict[str, Any]], questions: Sequence[Question]
) -> tuple[list[dict[str, Any]], list[Question]]:
    arrays = _arrays(path)
    of_documents = dict(zip(arrays["corpus_ids"].tolist(), arrays["corpus"].astype(float).tolist(), strict=True))
    of_queries = dict(zip(arrays["query_ids"].tolist(), arrays["queries"].astype(float).tolist(), strict=True))
    try:
        embedded = [{**document, "vector": of_documents[document["id"]]} for document in documents]
        return embedded, [replace(question, vector=of_queries[question.id]) for question in questions]
    except KeyError as missing:
        raise SetupError(f"{path} has no vector of {missing}") from None


def _arrays(path: Path) -> Any:
    import numpy as np  # noqa: PLC0415 - only where vectors are given

    try:
        arrays = np.load(path, allow_pickle=False)
        _ = [arrays[name] for name in ("corpus_ids", "corpus", "query_ids", "queries")]
    except (OSError, ValueError, KeyError) as error:
        raise SetupError(f"cannot use {path}: it needs corpus_ids, corpus, query_ids and queries ({error})") from None
    return arrays


def _documents(path: Path, within: str | None) -> list[dict[str, Any]]:
    """Those that say something: an empty one can't be found, by us or by anyone."""
    documents: dict[str, dict[str, Any]] = {}
    for number, row in _rows(path):
        id, metadata = _text(path, number, row, "_id"), _metadata(path, number, row)
        title, text = _text(path, number, row, "title", ""), _text(path, number, row, "text", "")
        if id in documents:
            _refuse(path, number, f"the document {id!r} has come before")
        namespace = _namespace(path, number, metadata, within)
        documents[id] = {"id": id, "namespace": namespace, "title": title, "content": text, "metadata": metadata}
    said = [document for document in documents.values() if document["title"] or document["content"]]
    if not said:
        raise SetupError(f"{path} holds no documents")
    return said


def _questions(path: Path, judgements: Judgements, within: str | None) -> list[Question]:
    questions: dict[str, Question] = {}
    for number, row in _rows(path):
        id, text = _text(path, number, row, "_id"), _text(path, number, row, "text")
        if id in judgements:
            namespace = _namespace(path, number, _metadata(path, number, row), within)
            questions[id] = Question(id, text, namespace)
    missing = next((id for id in judgements if id not in questions), None)
    if missing is not None:
        raise SetupError(f"{path} lacks the query {missing!r}, which has judgements")
    return list(questions.values())


def _judgements(path: Path) -> dict[str, dict[str, int]]:
    """Of the queries for which some document is right: the others have nothing to find."""
    judged: dict[str, dict[str, int]] = {}
    for number, line in _lines(path):
        columns = line.decode(errors="replace").rstrip("\r\n").split("\t")
        if len(columns) != 3:
            _refuse(path, number, f"has {len(columns)} columns; expected query-id, corpus-id and score, tabs between")
        query, document, score = columns
        if number == 1 and not _is_whole(score):
            continue
        if not _is_whole(score):
            _refuse(path, number, f"the score must be a whole number, not {score!r}")
        judged.setdefault(query, {})[document] = int(score)
    right = {query: scores for query, scores in judged.items() if max(scores.values()) > 0}
    if not right:
        raise SetupError(f"{path} judges no document right for any query")
    return right


def _links(path: Path) -> list[dict[str, Any]]:
    """The API checks the rest."""
    links = []
    for number, row in _rows(path):
        for end in ("source", "target"):
            _text(path, number, row, end)
        links.append(row)
    return links


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in _lines(path):
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            _refuse(path, number, f"is not valid JSON: {error}")
        if not isinstance(row, dict):
            _refuse(path, number, "is not a JSON object")
        yield number, row


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as lines:
            yield from ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    except OSError as error:
        raise SetupError(f"cannot read {path}: {error.strerror}") from None


def _text(path: Path, number: int, row: dict[str, Any], field: str, default: str | None = None) -> str:
    value = row.get(field, default)
    if not isinstance(value, str) or (default is None and not value.strip()):
        _refuse(path, number, f"`{field}` must be a text{'' if default is not None else ', and not empty'}")
    return value


def _metadata(path: Path, number: int, row: dict[str, Any]) -> dict[str, Any]:
    metadata = row.get("metadata") or {}
    if not isinstance(metadata, dict):
        _refuse(path, number, "`metadata` must be an object")
    return metadata


def _namespace(path: Path, number: int, metadata: dict[str, Any], within: str | None) -> str:
    if within is None:
        return NAMESPACE
    value = metadata.get(within)
    if not isinstance(value, str) or not value:
        _refuse(path, number, f"`metadata` has no text called {within!r}")
    return value


def _is_whole(score: str) -> bool:
    return score.strip().removeprefix("-").isdecimal()


def _refuse(path: Path, number: int, reason: str) -> NoReturn:
    raise SetupError(f"{path}, line {number}: {reason}")
