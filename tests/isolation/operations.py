"""Random calls of every endpoint: as its users make them, as attackers make them, and as nobody should."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import quote, unquote

from tests.isolation.canaries import ID, METADATA, TAG, TITLE, TYPE, UNSHOWN, Canary, canaries
from tests.isolation.world import (
    DOCUMENTS,
    PLACES,
    Visitor,
    document,
    document_id,
    key_name,
    namespace_name,
    place_of,
    project_name,
    tenant_name,
)

DIMENSION = 256  # of the bundled embedder


@dataclass(frozen=True, slots=True)
class Call:
    """One call. `about` is the tenant that an admin's call names; nobody may see canaries in what is `public`."""

    method: str
    path: str
    body: Any = None
    params: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    about: int | None = None
    public: bool = False

    @property
    def content(self) -> bytes | None:
        if self.body is None or isinstance(self.body, bytes):
            return self.body
        return json.dumps(self.body).encode()

    @property
    def sent(self) -> set[Canary]:
        """What the caller said itself, and may hear again."""
        body = (self.content or b"").decode(errors="replace")
        return canaries(f"{unquote(self.path)} {self.params} {self.headers} {body}")


@dataclass(frozen=True, slots=True)
class Draw:
    """Chance, and who is calling: `own` is the visitor's tenant, or some tenant where it has none."""

    random: Random
    visitor: Visitor
    own: int
    other: int

    def number(self) -> int:
        """A document's; mostly of a place that the visitor can see."""
        seen = [n for n in range(DOCUMENTS) if place_of(n) in self.visitor.places]
        return self.random.choice(seen if seen and self.random.random() < 0.8 else range(DOCUMENTS))

    def whose(self) -> int:
        return self.own if self.random.random() < 0.7 else self.other

    def id(self) -> str:
        return document_id(self.whose(), self.number())

    def namespace(self) -> str:
        return namespace_name(self.whose(), place_of(self.number()))

    def mark(self, kind: str) -> str:
        number = self.number()
        return str(Canary(self.whose(), kind, place_of(number), number))

    def document(self) -> dict[str, Any]:
        """The visitor's own; now and then with a link to a foreign document, or in a namespace of a foreign name."""
        number = self.number()
        made = document(self.own, number, self.random)
        if self.random.random() < 0.1:
            made["links"].append({"to": str(Canary(self.other, ID, place_of(number), number))})
        if self.random.random() < 0.05:
            made["namespace"] = namespace_name(self.other, place_of(number))
        return made

    def maybe(self, chance: float, **values: Any) -> dict[str, Any]:
        return values if self.random.random() < chance else {}


def put(draw: Draw) -> Call:
    body = draw.document()
    id = body.pop("id")
    return Call("PUT", f"/v1/documents/{quote(id)}", body, draw.maybe(0.1, wait="true"))


def put_many(draw: Draw) -> Call:
    items: list[Any] = [draw.document() for _ in range(draw.random.randint(1, 5))]
    items += [{"id": draw.id(), draw.mark(TITLE): 1}] if draw.random.random() < 0.3 else []
    return Call("POST", "/v1/documents", items, draw.maybe(0.1, wait="true"))


def put_lines(draw: Draw) -> Call:
    lines = [json.dumps(draw.document()) for _ in range(draw.random.randint(1, 5))]
    lines += [f'{{"id": "{draw.id()}", "title": '] if draw.random.random() < 0.3 else []
    return Call("POST", "/v1/documents", "\n".join(lines).encode(), headers={"Content-Type": "application/x-ndjson"})


def get(draw: Draw) -> Call:
    return Call("GET", f"/v1/documents/{quote(draw.id())}")


def delete(draw: Draw) -> Call:
    return Call("DELETE", f"/v1/documents/{quote(draw.id())}")


def neighbors(draw: Draw) -> Call:
    return Call("GET", f"/v1/documents/{quote(draw.id())}/neighbors", params=draw.maybe(0.3, limit=200))


def status(draw: Draw) -> Call:
    return Call("GET", f"/v1/documents/{quote(draw.id())}/status")


def listing(draw: Draw) -> Call:
    params = {"limit": draw.random.choice([1, 10, 1000])}
    params |= draw.maybe(0.3, namespace=draw.namespace()) | draw.maybe(0.3, after=draw.id())
    return Call("GET", "/v1/documents", params=params | draw.maybe(0.3, filter=json.dumps(a_filter(draw))))


def namespaces(_: Draw) -> Call:
    return Call("GET", "/v1/namespaces")


def stats(draw: Draw) -> Call:
    return Call("GET", draw.random.choice(["/v1/stats", "/v1/stats/history"]), params=draw.maybe(0.5, hours=1))


def edges(draw: Draw) -> Call:
    """From documents of one's own, whose place the type's canary names; to one's own or anybody's."""
    number = draw.number()
    kind = str(Canary(draw.own, "l", place_of(number), draw.random.randrange(2000)))
    near = document_id(draw.own, (number + len(PLACES)) % DOCUMENTS)
    target = near if draw.random.random() < 0.8 else str(Canary(draw.other, ID, place_of(number), number))
    return Call("POST", "/v1/edges", [{"source": document_id(draw.own, number), "target": target, "type": kind}])


def foreign_edges(draw: Draw) -> Call:
    return Call("POST", "/v1/edges", [{"source": document_id(draw.other, 0), "target": document_id(draw.other, 8)}])


def cut_edges(draw: Draw) -> Call:
    return Call("DELETE", "/v1/edges", [{"source": draw.id(), "target": draw.id()}])


def a_filter(draw: Draw) -> dict[str, Any]:
    one: list[dict[str, Any]] = [
        {"type": draw.mark(TYPE)},
        {"tags": ["sea", draw.mark(TAG)]},
        {"metadata": {"depth": {"gte": 0, "lt": draw.random.randrange(DOCUMENTS)}}},
        {"metadata": {draw.mark(METADATA): {"exists": True}}},
        {"metadata": {"depth": {"in": [1, 2, 3, draw.mark(METADATA)]}}},
        {"created_after": "2020-01-01T00:00:00Z", "created_before": "2120-01-01T00:00:00Z"},
    ]
    first, second = draw.random.choice(one), draw.random.choice(one)
    return draw.random.choice([first, {"not": first}, {"any": [first, second]}, {"all": [first, {"not": second}]}])


def a_query(draw: Draw) -> str:
    some = [
        "walrus on ice",
        "Hvaldimir",
        f"Whale {draw.mark('e')}",
        draw.mark(TITLE),
        f'"{draw.mark(TITLE)} on ice"',
        f"walrus -{draw.mark(TITLE)}",
        f"hole where {draw.mark('c')} Hvaldimir rests",
        draw.id(),
    ]
    return draw.random.choice(some)


WEIGHTS = [
    None,
    {"keyword": 1, "vector": 0, "graph": 0},
    {"keyword": 0, "vector": 1, "graph": 0},
    {"keyword": 0, "vector": 0, "graph": 1},
    {"keyword": 0.4, "vector": 0.3, "graph": 0.3},
]


def search(draw: Draw) -> Call:
    body: dict[str, Any] = {"query": a_query(draw), "limit": draw.random.choice([1, 10, 100])}
    body["weights"] = draw.random.choice(WEIGHTS)
    body |= draw.maybe(0.3, filter=a_filter(draw)) | draw.maybe(0.5, explain=True) | draw.maybe(0.3, highlight=True)
    body |= draw.maybe(0.1, timeout_ms=1, allow_degraded=False)
    body |= draw.maybe(0.1, require=["keyword", "vector"])
    body |= draw.maybe(0.1, vector=[draw.random.uniform(-1, 1) for _ in range(DIMENSION)])
    chosen = draw.maybe(0.2, namespace=draw.namespace())
    body |= chosen or draw.maybe(0.2, include_namespaces=[draw.namespace(), draw.namespace(), "default"])
    return Call("POST", "/v1/search", body)


def explain(draw: Draw) -> Call:
    asked = search(draw)
    return Call("POST", "/v1/explain", {**asked.body, "id": draw.id()})


def search_by_url(draw: Draw) -> Call:
    params: dict[str, Any] = {"q": a_query(draw), **(draw.random.choice(WEIGHTS) or {})}
    params |= draw.maybe(0.3, namespace=draw.namespace()) | draw.maybe(0.3, explain="true")
    return Call("GET", "/v1/search", params=params, headers=draw.maybe(0.3, **{"X-Request-ID": draw.mark(TITLE)}))


def suggest(draw: Draw) -> Call:
    typed = draw.random.choice(["w", "wa", "walrus", "Hval", draw.mark(TITLE), draw.mark("e"), draw.mark("c")])
    params: dict[str, Any] = {"q": typed[: draw.random.randint(1, 20)], "limit": draw.random.choice([1, 10, 50])}
    return Call("GET", "/v1/suggest", params=params | draw.maybe(0.3, namespace=draw.namespace()))


def mistake(draw: Draw) -> Call:
    """What is refused: each answer must name the mistake, and nothing else."""
    word, id = draw.mark(TITLE), draw.id()
    some = [
        Call("POST", "/v1/search", {"query": word, word: 1}),
        Call("POST", "/v1/search", {"query": f"{word}\x00"}),
        Call("POST", "/v1/search", f'{{"query": "{word}"'.encode()),
        Call("POST", "/v1/search", {"query": f"{word} " * 100}),
        Call("POST", "/v1/search", {"query": word, "vector": [1, 2]}),
        Call("POST", "/v1/search", {"query": word, "filter": {"metadata": {word: {"gte": word}}}}),
        Call("POST", "/v1/search", b"[" * 100),
        Call("POST", "/v1/documents", b'"%s"' % (b"x" * 70_000)),
        Call("POST", "/v1/documents", {"id": id}),
        Call("PUT", f"/v1/documents/{quote(id)}", {"content": word, "priority": word}),
        Call("PUT", f"/v1/documents/{quote(id)}", {"content": word, "namespace": f"{word} !"}),
        Call("GET", "/v1/documents", params={"filter": word, "limit": 0}),
        Call("GET", "/v1/documents", params={"filter": json.dumps({word: word})}),
        Call("GET", "/v1/search", params={"q": word, "keyword": word}),
        Call("POST", "/v1/edges", [{"source": id, "target": id, "strength": 7}]),
        Call("PATCH", f"/v1/documents/{quote(id)}"),
        Call("GET", f"/v1/{word}"),
        Call("DELETE", "/v1/edges", [{"source": f"{word}\x07", "target": id}]),
    ]
    return draw.random.choice(some)


def public(draw: Draw) -> Call:
    paths = ("/metrics", "/readyz", "/healthz", "/openapi.json", "/docs", "/")
    return Call("GET", draw.random.choice(paths), public=True)


def admin(draw: Draw) -> Call:
    """Reads, harmless changes and refused ones. Tenants' own keys make these calls too, and are refused."""
    owner = draw.random.choice([draw.own, draw.other])
    below, again = f"/v1/admin/tenants/{tenant_name(owner)}", {"name": namespace_name(owner, 1)}
    page = draw.maybe(0.5, limit=draw.random.choice([1, 3, 1000]))
    some = [
        Call("GET", "/v1/admin/tenants", params=page),
        Call("GET", "/v1/admin/audit", params={**page, "after": draw.random.randrange(400)}),
        Call("GET", "/v1/admin/audit", params={**page, "tenant": tenant_name(owner)}, about=owner),
        Call("GET", "/v1/admin/keys", params=page),
        Call("GET", "/v1/admin/indexing", params=page),
        Call("GET", "/v1/admin/indexing", params={**page, "tenant": tenant_name(owner)}, about=owner),
        Call("POST", "/v1/admin/indexing/retry", {"tenant": tenant_name(owner)}, about=owner),
        Call("GET", "/v1/admin/stats", params=page),
        *(Call("GET", f"{below}/{kind}", params=page, about=owner) for kind in ("projects", "namespaces", "keys")),
        Call("GET", below, about=owner),
        Call("GET", f"/v1/admin/tenants/{draw.mark(TITLE)}"),
        Call("PATCH", below, {"max_bytes": draw.random.choice([None, 10**9])}, about=owner),
        Call("PATCH", below, {"state": draw.mark(TITLE)}, about=owner),
        Call("PATCH", f"{below}/namespaces/{again['name']}", {"weights": draw.random.choice(WEIGHTS)}, about=owner),
        Call("PATCH", f"{below}/namespaces/{again['name']}", {"project": draw.mark(TITLE)}, about=owner),
        Call("POST", "/v1/admin/tenants", {"name": tenant_name(owner)}, about=owner),
        Call("POST", f"{below}/namespaces", again, about=owner),
        Call("POST", f"{below}/projects", {"name": project_name(owner)}, about=owner),
        Call("POST", f"{below}/keys", {"name": key_name(owner, 0), "project": draw.mark(TITLE)}, about=owner),
        Call("DELETE", f"{below}/projects/{project_name(owner)}", about=owner),
        Call("DELETE", f"{below}/keys/{'0' * 12}", about=owner),
        Call("DELETE", f"{below}/namespaces/{Canary(owner, 'n', UNSHOWN, 1)}", about=owner),
    ]
    return draw.random.choice(some)


OPERATIONS: dict[Callable[[Draw], Call], int] = {
    search: 30,
    explain: 6,
    search_by_url: 8,
    suggest: 8,
    put: 10,
    put_many: 4,
    put_lines: 4,
    get: 8,
    delete: 4,
    neighbors: 6,
    status: 4,
    listing: 6,
    namespaces: 4,
    stats: 3,
    edges: 4,
    foreign_edges: 1,
    cut_edges: 2,
    mistake: 8,
    public: 3,
    admin: 3,
}
