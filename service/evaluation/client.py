"""What an evaluation asks of Braid over HTTP: load a collection, search it, take it away again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import orjson

from service.api.limits import Limits
from service.errors import SetupError
from service.evaluation.collection import Collection, Question
from service.model import TIERS, Hit, Status, TierAnswer

CLIENTS = 4
VISIBLE_SECONDS = 600
_LIMITS = Limits()  # as shipped: another instance may allow less, and says so
_NDJSON = {"Content-Type": "application/x-ndjson"}
Item = TypeVar("Item")
# Starts a progress bar with a label and a total, and returns how to advance it.
Bar = Callable[[str, int], Callable[[int], None]]


@dataclass(frozen=True, slots=True)
class Answer:
    """One search: the ids in order, the weights that counted, and the time from the request to the last byte."""

    ids: Sequence[str]
    weights: Mapping[str, float]
    degraded: bool
    shortened: bool
    took_ms: float


class Client:
    """A Braid, as the holder of one key sees it. Threads may share it."""

    def __init__(self, url: str, key: str) -> None:
        self._http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=180)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def refuse_used(self) -> None:
        """An evaluation needs a tenant without documents: others would be ranked too, or even overwritten."""
        used = self._send("GET", "/v1/namespaces")["namespaces"]
        if used:
            count = sum(namespace["documents"] for namespace in used)
            raise SetupError(
                f"this key's tenant has {count:,} documents; take an empty one: braid key create --tenant throw-away"
            )

    def load(self, collection: Collection, bar: Bar) -> None:
        """Writes everything; when this returns every tier can find it."""
        step = bar("Loading", len(collection.documents) + len(collection.links))
        for documents in _batches(collection.documents):
            lines = b"\n".join(map(orjson.dumps, documents))
            written = self._send("POST", "/v1/documents", params={"wait": True}, content=lines, headers=_NDJSON)
            _check(written)
            self._until_visible(written, partial(self._put, documents[-1]))
            step(len(documents))
        for links in _batches(collection.links):
            self._until_visible(self._link(links), partial(self._link, links))
            step(len(links))

    def remove(self, collection: Collection, bar: Bar) -> None:
        """Takes the documents away again, and their links with them."""
        step = bar("Removing", len(collection.documents))

        def delete(document: dict[str, Any]) -> None:
            response = self._http.delete(_path(document["id"]))
            if response.status_code != 404:
                _answer(response)
            step(1)

        with ThreadPoolExecutor(CLIENTS) as threads:
            list(threads.map(delete, collection.documents))

    def ask(
        self,
        question: Question,
        *,
        limit: int,
        weights: Mapping[str, float] | None = None,
        timeout_ms: int | None = None,
    ) -> Answer:
        """One search, in the question's own namespace; a text longer than the API takes is shortened."""
        body = _asked(question, limit) | ({} if weights is None else {"weights": weights})
        if timeout_ms is not None:
            body["timeout_ms"] = timeout_ms
        started = time.perf_counter()
        response = self._http.post("/v1/search", json=body)
        took_ms = (time.perf_counter() - started) * 1000
        told = _answer(response)
        return Answer(
            ids=[result["id"] for result in told["results"]],
            weights=told["weights"],
            degraded=told["degraded"],
            shortened=body["query"] != question.text,
            took_ms=took_ms,
        )

    def weights(self) -> dict[str, float]:
        """The weights of a search that brings none."""
        told = self._send("POST", "/v1/search", json={"query": "anything", "limit": 1})
        return {tier: answer["weight"] for tier, answer in told["tiers"].items()}

    def hits(self, question: Question, tier: str, *, limit: int, timeout_ms: int) -> TierAnswer:
        """What one tier alone finds, with its own scores."""
        alone = {other: float(other == tier) for other in TIERS}
        body = _asked(question, limit) | {"weights": alone, "timeout_ms": timeout_ms}
        told = _answer(self._http.post("/v1/search", json=body))
        hits = tuple(Hit(result["id"], result["tiers"][tier]["raw"]) for result in told["results"])
        return TierAnswer(tier, Status(told["tiers"][tier]["status"]), hits)

    def _put(self, document: dict[str, Any]) -> dict[str, Any]:
        body = {name: value for name, value in document.items() if name != "id"}
        return self._send("PUT", _path(document["id"]), params={"wait": True}, json=body)

    def _link(self, links: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return _check(self._send("POST", "/v1/edges", params={"wait": True}, json=links))

    def _until_visible(self, written: dict[str, Any], again: Callable[[], dict[str, Any]]) -> None:
        """Sinks apply in the order of writing: what was written last is visible last."""
        deadline = time.monotonic() + VISIBLE_SECONDS
        while not written.get("visible"):
            if time.monotonic() > deadline:
                raise SetupError(f"not everything could be found after {VISIBLE_SECONDS} s: see /readyz and the log")
            written = again()

    def _send(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        return _answer(self._http.request(method, path, **request))


def _asked(question: Question, limit: int) -> dict[str, Any]:
    body = {"query": shortened(question.text), "limit": limit, "namespace": question.namespace}
    return body if question.vector is None else {**body, "vector": question.vector}


def shortened(text: str) -> str:
    """As much of a query as the API takes."""
    words = text.split()
    chars, terms = _LIMITS.max_query_chars, _LIMITS.max_query_terms
    return text if len(text) <= chars and len(words) <= terms else " ".join(words[:terms])[:chars]


def _answer(response: httpx.Response) -> dict[str, Any]:
    try:
        told = response.json() if response.content else {}
        if response.is_success and isinstance(told, dict):
            return told
        reason = f"{told['detail']} {[error['message'] for error in told.get('errors', ())] or ''}".strip()
    except (ValueError, KeyError, TypeError):
        reason = f"from {response.url}: is that Braid?"
    raise SetupError(f"{response.status_code}: {reason}")


def _check(written: dict[str, Any]) -> dict[str, Any]:
    refused = next((item for item in written["items"] if item["status"] == "error"), None)
    if refused is not None:
        raise SetupError(f"{refused['id'] or 'a link'} was refused: {refused['error']}")
    return written


def _path(id: str) -> str:
    return f"/v1/documents/{quote(id, safe='')}"


def _batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    most = _LIMITS.max_bulk_items
    return (items[start : start + most] for start in range(0, len(items), most))
