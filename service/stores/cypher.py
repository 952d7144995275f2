"""The Cypher of writing, and how documents, links and filters become its parameters. Pure: nothing here asks FalkorDB.

    (:Document {id, namespace, title, words, tokens, facets, number_paths, number_values, created, version, fence})
    (:Entity {key, name, words, tokens})
    (:Document)-[:ABOUT {type: 'about', strength: 1.0, stamp, fence}]->(:Entity)
    (:Document)-[:LINK {type, strength, stamp, fence}]->(:Document)

What callers write is always a parameter, never a part of a query: a link's type is a property. The client pastes
parameters into the query text, so `safe_params` refuses what would not survive that.

Each statement is seen by searches as a whole or not at all. An apply puts every edge that is wanted, with its own
stamp, and cuts what has another one in the same statement: an edge that stays is there at every moment.

What was written under a higher fence is newer, and is left as it is: see `dirty`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from service.errors import TierInvalid
from service.facets import facets_of, numbers_of
from service.model import Document, Edge, Filter, NumberRange
from service.ranking.names import words as words_of

ANYTHING = "true"
_OPERATORS = (("gte", ">="), ("gt", ">"), ("lte", "<="), ("lt", "<"))

INDEXES = {
    ("Document", "id", "RANGE"): "CREATE INDEX FOR (d:Document) ON (d.id)",
    ("Entity", "key", "RANGE"): "CREATE INDEX FOR (e:Entity) ON (e.key)",
    ("Document", "words", "FULLTEXT"): (
        "CALL db.idx.fulltext.createNodeIndex({label: 'Document', stopwords: []}, {field: 'words', nostem: true})"
    ),
    ("Entity", "words", "FULLTEXT"): (
        "CALL db.idx.fulltext.createNodeIndex({label: 'Entity', stopwords: []}, {field: 'words', nostem: true})"
    ),
}
# An index is filled in the background: until then it answers with less than there is.
LIST_INDEXES = "CALL db.indexes() YIELD label, types, status WHERE status = 'OPERATIONAL' RETURN label, types"


PUT_DOCUMENTS = """
UNWIND $rows AS row
MERGE (d:Document {id: row.id})
WITH d, row WHERE coalesce(d.fence, 0) <= $fence
SET d.namespace = row.namespace, d.title = row.title, d.words = row.words, d.tokens = row.tokens,
    d.facets = row.facets, d.number_paths = row.number_paths, d.number_values = row.number_values,
    d.created = row.created, d.version = row.version, d.fence = $fence
"""
# The names outside of CALL differ from those inside: the planner takes equal ones for the same.
REPLACE_ABOUT = """
CALL {
  UNWIND $rows AS row
  MATCH (d:Document {id: row.id}) WHERE d.fence = $fence
  MERGE (e:Entity {key: row.key})
  ON CREATE SET e.name = row.name, e.words = row.key, e.tokens = row.tokens
  MERGE (d)-[r:ABOUT]->(e)
  SET r.type = 'about', r.strength = 1.0, r.stamp = $stamp, r.fence = $fence
  RETURN count(r) AS put
}
UNWIND $ids AS id
MATCH (:Document {id: id})-[old:ABOUT]->(left:Entity)
WHERE old.stamp <> $stamp AND coalesce(old.fence, 0) <= $fence
DELETE old
RETURN collect(DISTINCT left.key)
"""
REPLACE_LINKS = """
CALL {
  UNWIND $rows AS row
  MATCH (a:Document {id: row.source})
  MATCH (b:Document {id: row.target}) WHERE a.fence = $fence OR b.fence = $fence
  MERGE (a)-[r:LINK {type: row.type}]->(b)
  SET r.strength = row.strength, r.stamp = $stamp, r.fence = $fence
  RETURN count(r) AS put
}
UNWIND $ids AS id
MATCH (:Document {id: id})-[old:LINK]-(:Document)
WHERE old.stamp <> $stamp AND coalesce(old.fence, 0) <= $fence
DELETE old
"""
DELETE_DOCUMENTS = """
UNWIND $ids AS id
MATCH (d:Document {id: id}) WHERE coalesce(d.fence, 0) <= $fence
OPTIONAL MATCH (d)-[:ABOUT]->(e:Entity)
WITH d, collect(e.key) AS keys
DETACH DELETE d
RETURN keys
"""
DROP_ORPHANS = """
UNWIND $keys AS key
MATCH (e:Entity {key: key})
WHERE NOT (e)<-[:ABOUT]-()
DELETE e
"""
EVERYTHING = """
MATCH (d:Document) WHERE id(d) > $after
RETURN id(d) AS number, d.id, coalesce(d.version, 0), coalesce(d.fence, 0) ORDER BY number LIMIT $limit
"""
COUNT = "MATCH (d:Document) RETURN count(d)"


def filter_clause(filter: Filter) -> tuple[str, dict[str, Any]]:
    """The condition on a document `d`, and its parameters: $f0, $f1 ..."""
    clause = _Clause()
    return (ANYTHING if filter == Filter() else clause.all(filter)), clause.params


class _Clause:
    """A condition in the making, with the parameters it has taken so far."""

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}

    def all(self, filter: Filter) -> str:
        tests = [f"any(f IN d.facets WHERE f IN {self._param(list(group))})" for group in filter.any_of]
        tests += [self._range(bounds) for bounds in filter.ranges]
        for operator, moment in ((">=", filter.created_after), ("<", filter.created_before)):
            if moment is not None:  # coalesce, as NOT of null is not true
                tests.append(f"coalesce(d.created {operator} {self._param(moment.timestamp())}, false)")
        tests += [f"({' OR '.join(self.all(part) for part in group)})" for group in filter.one_of]
        tests += [f"NOT {self.all(part)}" for part in filter.none_of]
        return f"({' AND '.join(tests) or ANYTHING})"

    def _range(self, bounds: NumberRange) -> str:
        tests = [f"d.number_paths[i] = {self._param(bounds.path)}"]
        for bound, operator in _OPERATORS:
            value = getattr(bounds, bound)
            if value is not None:
                tests.append(f"d.number_values[i] {operator} {self._param(float(value))}")
        return f"any(i IN range(0, size(coalesce(d.number_paths, [])) - 1) WHERE {' AND '.join(tests)})"

    def _param(self, value: Any) -> str:
        name = f"f{len(self.params)}"
        self.params[name] = value
        return f"${name}"


def safe_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters, once it is sure that the client's text form of them means the same. Raises `TierInvalid`."""
    return {name: _safe(value) for name, value in params.items()}


def _safe(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return safe_text(value)
    if isinstance(value, (int, float)):
        return _safe_number(value)
    if isinstance(value, Mapping):
        return safe_params(value)
    if isinstance(value, (list, tuple)):
        return [_safe(element) for element in value]
    raise TierInvalid(f"a graph parameter cannot be a {type(value).__name__}")


def safe_text(value: str) -> str:
    if "\0" in value:
        raise TierInvalid("a graph parameter holds a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise TierInvalid("a graph parameter holds half a surrogate pair") from None
    return value


def _safe_number(value: float) -> float:
    if isinstance(value, float) and not math.isfinite(value):
        raise TierInvalid("a graph parameter is not a finite number")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise TierInvalid("a graph parameter is an integer of more than 64 bits")
    return value


def document_row(document: Document) -> dict[str, Any]:
    tokens = list(dict.fromkeys(words_of(document.title)))
    numbers = [(path, value) for path, values in numbers_of(document.metadata).items() for value in values]
    return {
        "id": document.id,
        "namespace": document.namespace,
        "title": document.title,
        "words": " ".join(tokens),
        "tokens": tokens,
        "facets": list(facets_of(document)),
        "number_paths": [path for path, _ in numbers],
        "number_values": [value for _, value in numbers],
        "created": _seconds(document.created_at),
        "version": document.version,
    }


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def about_rows(documents: Iterable[Document]) -> list[dict[str, Any]]:
    """Who is about what, each pair once. A name without a word in it is no entity; the first of equal names counts."""
    about: dict[tuple[str, str], dict[str, Any]] = {}
    names: dict[str, str] = {}
    for document in documents:
        for name in document.entities:
            words = words_of(name)
            if words:
                key = " ".join(words)
                entity = {"name": names.setdefault(key, name), "tokens": list(dict.fromkeys(words))}
                about[document.id, key] = {"id": document.id, "key": key, **entity}
    return list(about.values())


def link_rows(nodes: Mapping[str, tuple[Document, Sequence[Edge]]]) -> list[dict[str, Any]]:
    """Every link that touches one of the documents, once, whichever of its ends brought it."""
    links = {
        (edge.source, edge.target, edge.type): edge.strength
        for owner, (_, edges) in nodes.items()
        for edge in edges
        if owner in (edge.source, edge.target)
    }
    return [
        {"source": source, "target": target, "type": kind, "strength": float(strength)}
        for (source, target, kind), strength in links.items()
    ]
