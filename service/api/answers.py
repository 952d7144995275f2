"""What Braid answers with: models for the documentation, and plain functions that build the bodies quickly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, Literal

import orjson
from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from service.model import Adjustment, Contribution, Document, Found, Ranked, SearchResult, Suggestion, TierAnswer
from service.ranking.activation import CONFLICT
from service.ranking.explain import Explanation


class JSON(Response):
    """A JSON body from plain values."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)


class StepOut(BaseModel):
    """One step of the walk that found a document."""

    via: str
    to: str
    strength: float


class ContributionOut(BaseModel):
    """What one tier gave to one result. `weight`, `share` and `rule` come with `explain: true`."""

    rank: int
    raw: float
    normalised: float
    contribution: float
    weight: float | None = None
    share: float | None = None
    rule: str | None = None
    path: list[StepOut] | None = None


class AdjustmentOut(BaseModel):
    """One step after the sum of the contributions: `score = score * multiply + add`."""

    name: str
    multiply: float
    add: float
    inputs: dict[str, float | str]


class DocumentOut(BaseModel):
    """A document as it is stored."""

    id: str
    namespace: str
    title: str
    content: str
    metadata: dict[str, Any]
    type: str | None
    tags: list[str]
    entities: list[str]
    confidence: float | None
    priority: int | None
    created_at: datetime | None
    version: int


class LinkOut(BaseModel):
    """A link a document holds."""

    to: str
    type: str
    strength: float


class LinkedDocumentOut(DocumentOut):
    """A document with the links that begin at it."""

    links: list[LinkOut]


class HighlightOut(BaseModel):
    """HTML, in which `<mark>` is the only tag: the title, and the best parts of the content."""

    title: str
    content: list[str]


class ResultOut(DocumentOut):
    """One result: a document, its score, and where the score comes from; `adjustments` come with `explain: true`."""

    score: float
    match_confidence: float = Field(description="how good a match this is; `confidence` is the document's own")
    badge: Literal["HIGH", "MED", "LOW"]
    source: Literal["search", "activated", "conflict"]
    tiers: dict[str, ContributionOut]
    adjustments: list[AdjustmentOut] | None = None
    highlight: HighlightOut | None = None


class TierOut(BaseModel):
    """What became of one tier in this search. `weight` is what it was asked with; what counted stands in `weights`."""

    status: Literal["ok", "empty", "skipped", "timeout", "unavailable", "circuit_open", "invalid"]
    weight: float
    hits: int
    took_ms: float
    reason: str | None = None


class RerankerOut(BaseModel):
    """What became of the second stage, where there is one. `hits` are those it read."""

    name: str
    status: Literal["ok", "skipped", "timeout", "unavailable", "invalid"]
    hits: int
    took_ms: float
    reason: str | None


class SearchOut(BaseModel):
    """The answer to a search. `next` is the cursor of the page behind it, `cached` says which memory it is from."""

    results: list[ResultOut]
    degraded: bool
    tiers: dict[str, TierOut]
    weights: dict[str, float]
    namespaces: list[str]
    reranker: RerankerOut | None = None
    next: str | None
    cached: Literal["exact", "semantic"] | None
    took_ms: float
    request_id: str


class SuggestionOut(BaseModel):
    """A completion: all of the text to search for, what it is, and how many documents have it."""

    text: str
    kind: Literal["title", "entity", "term"]
    documents: int


class SuggestionsOut(BaseModel):
    """Completions of what was typed, the best first."""

    suggestions: list[SuggestionOut]


class StandingOut(BaseModel):
    """Where the document stands in one tier; `rank` is null where it is not among the first `looked` hits."""

    status: Literal["ok", "empty", "skipped", "timeout", "unavailable", "circuit_open", "invalid"]
    rank: int | None
    raw: float | None
    candidate: bool
    looked: int
    reason: str | None = None


class ExplainOut(BaseModel):
    """One document's place in one search, and why. `contributions` and `adjustments` come to `score` exactly."""

    id: str
    namespace: str
    on_page: bool
    rank: int | None
    reason: str
    score: float | None
    match_confidence: float
    badge: Literal["HIGH", "MED", "LOW"]
    tiers: dict[str, StandingOut]
    contributions: dict[str, ContributionOut]
    adjustments: list[AdjustmentOut]
    candidates: int
    request_id: str


class PageOut(BaseModel):
    """A page of documents; `next` is the id to pass as `after`, null on the last page."""

    documents: list[DocumentOut]
    next: str | None


class ItemOut(BaseModel):
    """What became of one item of a bulk call. `version` is that of a document."""

    id: str | None
    status: Literal["created", "updated", "unchanged", "error"]
    version: int | None = None
    error: str | None = None


class BulkOut(BaseModel):
    """One answer an item, in the order they were sent. `visible` is there with `?wait=true`."""

    errors: bool
    items: list[ItemOut]
    visible: bool | None = None


class DeletedOut(BaseModel):
    """How many links were deleted."""

    deleted: int
    visible: bool | None = None


class WrittenOut(BaseModel):
    """What became of one write."""

    id: str
    status: Literal["created", "updated", "unchanged"]
    version: int
    visible: bool | None = None


class GoneOut(BaseModel):
    """A deletion that some tier has not applied within the time limit."""

    id: str
    status: Literal["deleted"]
    version: int
    visible: bool


class TierStatusOut(BaseModel):
    """The version that a tier is to have, and the one it has. `error` is why it was refused, to be tried again then."""

    wanted: int
    applied: int
    error: str | None = None
    next_try: datetime | None = None


class StatusOut(BaseModel):
    """How far a document is on its way into the tiers. `version` is absent once it is deleted."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "note-3",
                    "version": 118,
                    "visible": False,
                    "tiers": {
                        "keyword": {"wanted": 118, "applied": 118},
                        "vector": {"wanted": 118, "applied": 118},
                        "graph": {"wanted": 118, "applied": 97},
                    },
                }
            ]
        }
    )

    id: str
    version: int | None = None
    visible: bool
    tiers: dict[str, TierStatusOut]


class NeighborOut(BaseModel):
    """A document one link away."""

    id: str
    namespace: str
    title: str
    type: str
    strength: float
    direction: Literal["out", "in"]


class NeighborsOut(BaseModel):
    """The documents around one document."""

    id: str
    neighbors: list[NeighborOut]


class NamespaceOut(BaseModel):
    """A namespace and how many documents it holds."""

    name: str
    documents: int


class NamespacesOut(BaseModel):
    """The namespaces the caller can see."""

    namespaces: list[NamespaceOut]


def document_body(document: Document) -> dict[str, Any]:
    return {
        "id": document.id,
        "namespace": document.namespace,
        "title": document.title,
        "content": document.content,
        "metadata": document.metadata,
        "type": document.type,
        "tags": document.tags,
        "entities": document.entities,
        "confidence": document.confidence,
        "priority": document.priority,
        "created_at": document.created_at,
        "version": document.version,
    }


def status_body(id: str, document: Document | None, sinks: Mapping[str, Mapping[str, Any]]) -> StatusOut:
    """The keyword tier is PostgreSQL itself: it has what was written, or has forgotten it, at once."""
    version = document.version if document else max(sink["wanted"] for sink in sinks.values())
    tiers = {"keyword": TierStatusOut(wanted=version, applied=version)}
    for name, sink in sinks.items():
        shown = {key: sink[key] for key in ("wanted", "applied", "error")}
        tiers[name] = TierStatusOut(**shown, next_try=sink["next_try"] if sink["error"] else None)
    visible = all(tier.applied >= tier.wanted for tier in tiers.values())
    return StatusOut(id=id, version=document.version if document else None, visible=visible, tiers=tiers)


def search_body(result: SearchResult, *, explain: bool) -> dict[str, Any]:
    """All that is the same for everyone who asks this; `told` adds the rest."""
    body = {
        "results": [_result(found, explain) for found in result.results],
        "degraded": result.degraded,
        "tiers": {name: _tier(answer, result.asked.get(name, 0.0)) for name, answer in result.answers.items()},
        "weights": result.weights,
        "namespaces": result.namespaces,
        "next": result.next,
    }
    second = result.reranker
    return body if second is None else body | {"reranker": _reranker(second)}


def told(body: bytes, *, cached: str | None, took_ms: float, request_id: str) -> bytes:
    """A search's body with what differs from call to call."""
    tail = orjson.dumps({"cached": cached, "took_ms": round(took_ms, 2), "request_id": request_id})
    return body[:-1] + b"," + tail[1:]


def explain_body(explained: Explanation, request_id: str) -> dict[str, Any]:
    ranked = explained.ranked
    tiers = {} if ranked is None else ranked.tiers
    return {
        "id": explained.document.id,
        "namespace": explained.document.namespace,
        "on_page": explained.on_page,
        "rank": explained.rank,
        "reason": explained.reason,
        "score": None if ranked is None else ranked.score,
        "match_confidence": explained.confidence,
        "badge": explained.badge,
        "tiers": {name: asdict(each) for name, each in explained.tiers.items()},
        "contributions": {name: _contribution(share, True) for name, share in tiers.items()},
        "adjustments": [] if ranked is None else [_adjustment(step) for step in ranked.adjustments],
        "candidates": explained.candidates,
        "request_id": request_id,
    }


def suggestion_body(suggestion: Suggestion) -> dict[str, Any]:
    return {"text": suggestion.text, "kind": suggestion.kind, "documents": suggestion.documents}


def _result(found: Found, explain: bool) -> dict[str, Any]:
    tiers = {name: _contribution(share, explain) for name, share in found.ranked.tiers.items()}
    body = document_body(found.document) | {
        "score": found.ranked.score,
        "source": _source(found.ranked),
        "tiers": tiers,
    }
    body |= {"match_confidence": found.confidence, "badge": found.badge}
    if found.highlight is not None:
        body["highlight"] = {"title": found.highlight.title, "content": found.highlight.content}
    return body | {"adjustments": [_adjustment(step) for step in found.ranked.adjustments]} if explain else body


def _source(ranked: Ranked) -> str:
    """Whether a tier found it, or only a link led there; a link that contradicts is worth knowing about."""
    if ranked.tiers:
        return "search"
    conflict = any(step.inputs.get("type") == CONFLICT for step in ranked.adjustments if step.name == "activation")
    return "conflict" if conflict else "activated"


def _contribution(share: Contribution, explain: bool) -> dict[str, Any]:
    body: dict[str, Any] = {
        "rank": share.rank,
        "raw": share.raw,
        "normalised": share.normalised,
        "contribution": share.contribution,
    }
    if explain:
        body |= {"weight": share.weight, "share": share.share, "rule": share.rule}
    if share.path:
        body["path"] = [{"via": s.via, "to": s.to, "strength": s.strength} for s in share.path]
    return body


def _adjustment(step: Adjustment) -> dict[str, Any]:
    return {"name": step.name, "multiply": step.multiply, "add": step.add, "inputs": step.inputs}


def _reranker(second: TierAnswer) -> dict[str, Any]:
    body = {"name": second.tier, "status": second.status.value, "hits": len(second.hits)}
    return body | {"took_ms": round(second.took_ms, 2), "reason": second.reason}


def _tier(answer: TierAnswer, weight: float) -> dict[str, Any]:
    body: dict[str, Any] = {
        "status": answer.status.value,
        "weight": weight,
        "hits": len(answer.hits),
        "took_ms": round(answer.took_ms, 2),
    }
    return body if answer.reason is None else body | {"reason": answer.reason}
