"""The embedders against what they really talk to: models on disk, and an HTTP server that can misbehave."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from service.errors import SetupError, TierInvalid, TierUnavailable
from service.stores.embedder import create_embedder

MINILM = Path(__file__).parents[2] / ".." / "shared" / "models" / "all-MiniLM-L6-v2"


def cosine(one: Any, other: Any) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


class Handler(BaseHTTPRequestHandler):
    """Answers each text with [its length, 1, 0], in reverse order, unless told to answer something else."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.seen.append((self.headers.get("authorization"), body))  # type: ignore[attr-defined]
        status, canned = self.server.canned  # type: ignore[attr-defined]
        data = [{"index": i, "embedding": [len(text), 1.0, 0]} for i, text in enumerate(body["input"])]
        reply = (canned if canned is not None else json.dumps({"data": data[::-1]})).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[Any] = []
        self.canned: tuple[int, str | None] = (200, None)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/embeddings"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def test_http_learns_its_dimension_and_keeps_the_order_over_batches(server: Server) -> None:
    embedder = await create_embedder(f"http:{server.url}", model="m", api_key="sk-secret")
    assert embedder.dimension == 3
    assert embedder.default_weights == {"keyword": 0.3, "vector": 0.6, "graph": 0.1}
    vectors = await embedder.embed_documents(["x" * (n + 1) for n in range(70)] + [" "])
    assert [vector[0] for vector in vectors] == [*range(1, 71), 0.0]
    assert [len(body["input"]) for _, body in server.seen] == [1, 64, 6]
    assert all(key == "Bearer sk-secret" and body["model"] == "m" for key, body in server.seen)
    await embedder.close()


async def test_http_takes_a_plain_url_and_does_not_ask_when_told_the_dimension(server: Server) -> None:
    embedder = await create_embedder(server.url, dimension=3)
    assert server.seen == []
    assert list(await embedder.embed_query("four")) == [4.0, 1.0, 0.0]
    await embedder.close()
    with pytest.raises(TierUnavailable):
        await embedder.embed_query("four")


@pytest.mark.parametrize("status", [401, 429, 500])
async def test_http_that_fails_is_unavailable_and_tells_no_key(server: Server, status: int) -> None:
    server.canned = (status, "your key sk-secret is bad")
    embedder = await create_embedder(server.url, api_key="sk-secret", dimension=3)
    with pytest.raises(TierUnavailable, match=f"status {status}") as caught:
        await embedder.embed_query("x")
    assert "secret" not in str(caught.value)
    await embedder.close()


@pytest.mark.parametrize(
    "reply",
    [
        "<html>",
        "[]",
        "{}",
        '{"data": []}',
        '{"data": [{"index": 1, "embedding": [1, 2, 3]}]}',
        '{"data": [{"index": 0, "embedding": [1, 2]}]}',
        '{"data": [{"index": 0, "embedding": [1, 2, NaN]}]}',
        '{"data": [{"index": 0, "embedding": ["1", "2", "3"]}]}',
        '{"data": [{"index": 0, "embedding": [[1], [2, 3]]}]}',
        '{"data": [{"index": 0, "embedding": null}]}',
    ],
)
async def test_http_garbage_is_invalid(server: Server, reply: str) -> None:
    server.canned = (200, reply)
    embedder = await create_embedder(server.url, dimension=3)
    with pytest.raises(TierInvalid):
        await embedder.embed_query("x")
    await embedder.close()


async def test_http_that_is_down_at_the_start_asks_for_the_dimension() -> None:
    with pytest.raises(SetupError, match="BRAID_EMBEDDER_DIMENSION"):
        await create_embedder("http:http://127.0.0.1:1/v1/embeddings")
    embedder = await create_embedder("http:http://127.0.0.1:1/v1/embeddings", dimension=3)
    with pytest.raises(TierUnavailable, match="no answer"):
        await embedder.embed_query("x")
    await embedder.close()


async def test_wordllama_knows_that_cats_are_nearer_to_kittens_than_to_tax() -> None:
    embedder = await create_embedder("wordllama")
    query = await embedder.embed_query("a cat")
    kitten, tax, blank = await embedder.embed_documents(["kittens", "income tax law", ""])
    assert len(query) == embedder.dimension == 256
    assert cosine(query, query) == pytest.approx(1.0)
    assert cosine(query, kitten) > cosine(query, tax)
    assert not any(blank)
    assert not any(await embedder.embed_query(""))
    await embedder.close()


async def test_wordllama_takes_a_very_long_text() -> None:
    embedder = await create_embedder("wordllama")
    vectors = await embedder.embed_documents(["word " * 200_000, "short"])
    assert [len(vector) for vector in vectors] == [256, 256]
    await embedder.close()


@pytest.mark.skipif(not MINILM.is_dir(), reason=f"no model in {MINILM}")
async def test_fastembed_loads_a_folder() -> None:
    embedder = await create_embedder(f"fastembed:{MINILM}")
    query = await embedder.embed_query("how do I fix a flat tyre?")
    near, far, blank = await embedder.embed_documents(["repairing a punctured wheel", "the history of tea", " "])
    assert len(query) == embedder.dimension == 384
    assert cosine(query, near) > cosine(query, far)
    assert not any(blank)
    await embedder.close()
