"""Rerankers: each shape of server, a cross-encoder from a folder, and word vectors; and what each makes of nonsense."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import SetupError, TierInvalid, TierUnavailable
from service.stores.reranker import LateInteraction, as_probabilities, create_reranker, maxsim
from tests.unit.tiny_onnx import folder_of

Answer = Callable[[dict[str, Any]], tuple[int, Any]]


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[tuple[str, list[tuple[dict[str, str], dict[str, Any]]]]]:
    """A server on a real socket: what it was asked, with headers, is in the list."""
    asked: list[tuple[dict[str, str], dict[str, Any]]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        asked.append((headers, body))
        status, reply = answer(body)
        data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/rerank", asked


class TestServers:
    async def test_tei_is_asked_in_its_own_shape(self) -> None:
        reply = [{"index": 1, "score": 0.9}, {"index": 0, "score": 0.2}]
        async with serving(lambda _: (200, reply)) as (url, asked):
            reranker = await create_reranker(f"tei:{url}")
            assert reranker is not None
            assert await reranker.score("q", ["a", "b"]) == [0.2, 0.9]
            assert asked[0][1] == {"query": "q", "texts": ["a", "b"], "truncate": True, "raw_scores": False}
            await reranker.close()

    async def test_cohere_and_jina_are_asked_in_theirs(self) -> None:
        reply = {"results": [{"index": 1, "relevance_score": 0.7}, {"index": 0, "relevance_score": 0.1}]}
        async with serving(lambda _: (200, reply)) as (url, asked):
            reranker = await create_reranker(f"cohere:{url}", model="rerank-v3.5", api_key="secret")
            assert reranker is not None
            assert await reranker.score("q", ["a", "b"]) == [0.1, 0.7]
            headers, body = asked[0]
            assert headers["authorization"] == "bearer secret"  # lowered by the test's own reading
            assert (body["model"], body["documents"], body["top_n"]) == ("rerank-v3.5", ["a", "b"], 2)
            await reranker.close()

    async def test_logits_become_probabilities(self) -> None:
        reply = [{"index": 0, "score": -2.0}, {"index": 1, "score": 3.0}]
        async with serving(lambda _: (200, reply)) as (url, _):
            reranker = await create_reranker(f"tei:{url}")
            assert reranker is not None
            scores = await reranker.score("q", ["a", "b"])
            assert scores == pytest.approx([1 / (1 + math.exp(2)), 1 / (1 + math.exp(-3))])
            await reranker.close()

    @pytest.mark.parametrize(
        "reply",
        [
            [],
            [{"index": 0, "score": 0.5}],
            [{"index": 0, "score": 0.5}, {"index": 0, "score": 0.6}],
            [{"index": 0, "score": 0.5}, {"index": 7, "score": 0.6}],
            [{"index": 0, "score": "?"}, {"index": 1, "score": 0.6}],
            [{"index": 0, "score": None}, {"index": 1, "score": 0.6}],
            {"error": "no"},
            [1, 2],
            b"<html>",
            b'[{"index": 0, "score": NaN}, {"index": 1, "score": 0.6}]',
        ],
    )
    async def test_a_reply_that_is_no_answer_is_invalid(self, reply: Any) -> None:
        async with serving(lambda _: (200, reply)) as (url, _):
            reranker = await create_reranker(f"tei:{url}")
            assert reranker is not None
            with pytest.raises(TierInvalid):
                await reranker.score("q", ["a", "b"])
            await reranker.close()

    async def test_a_refusal_and_no_server_at_all_are_unavailable(self) -> None:
        async with serving(lambda _: (503, {})) as (url, _):
            refusing = await create_reranker(f"tei:{url}")
            assert refusing is not None
            with pytest.raises(TierUnavailable, match="status 503"):
                await refusing.score("q", ["a"])
            await refusing.close()
        absent = await create_reranker("tei:http://127.0.0.1:9/rerank")
        assert absent is not None
        with pytest.raises(TierUnavailable, match="no answer"):
            await absent.score("q", ["a"])
        await absent.close()

    async def test_texts_are_cut(self) -> None:
        async with serving(lambda _: (200, [{"index": 0, "score": 0.5}])) as (url, asked):
            reranker = await create_reranker(f"tei:{url}")
            assert reranker is not None
            await reranker.score("q", ["x" * 10_000])
            assert len(asked[0][1]["texts"][0]) == 4000
            await reranker.close()


class TestCrossEncoder:
    async def test_a_folder_with_a_model_is_one(self, tmp_path: Path) -> None:
        """The model's logit is the mean of token ids: 1 and 2 for `ice walrus` makes 1.5, 1 and 3 makes 2."""
        folder = folder_of(tmp_path / "tiny", ["ice", "walrus", "antenna"])
        reranker = await create_reranker(f"fastembed:{folder}")
        assert reranker is not None
        assert await reranker.score("ice", ["walrus", "antenna"]) == pytest.approx(
            [1 / (1 + math.exp(-1.5)), 1 / (1 + math.exp(-2.0))]
        )

    async def test_a_folder_without_a_model_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SetupError, match="cannot be loaded"):
            await create_reranker(f"fastembed:{tmp_path}")


class TestLateInteraction:
    def test_every_word_of_the_query_finds_its_nearest_word(self) -> None:
        query = np.array([[2, 0], [0, 1]], np.float32)
        document = np.array([[3, 4], [0, 2]], np.float32)
        # The first word, of length 2: cosines 0.6 and 0. The second, of length 1: 0.8 and 1. (2 x 0.6 + 1 x 1) / 3
        assert maxsim(query, document) == pytest.approx(2.2 / 3)

    def test_nothing_fits_nothing(self) -> None:
        nothing, word = np.zeros((0, 2), np.float32), np.ones((1, 2), np.float32)
        assert maxsim(nothing, word) == maxsim(word, nothing) == maxsim(np.zeros((1, 2), np.float32), word) == 0

    async def test_it_tells_what_fits_from_what_does_not_offline(self) -> None:
        late = LateInteraction()
        texts = ["The heater keeps the antenna free of ice.", "Lunch is at noon.", ""]
        fits, other, empty = await late.score("what keeps the antenna warm", texts)
        assert fits > other > empty == 0
        await late.close()


@given(st.lists(st.floats(-700, 700), max_size=20))
def test_probabilities_keep_the_order(scores: list[float]) -> None:
    made = as_probabilities(scores)
    assert all(0 <= score <= 1 for score in made)
    order = sorted(range(len(scores)), key=scores.__getitem__)
    assert [made[at] for at in order] == sorted(made)


async def test_none_is_no_reranker() -> None:
    assert await create_reranker("none") is None


@pytest.mark.parametrize(
    "spec", ["", "tei:", "tei:nowhere", "http://x/rerank", "fastembed:", "fastembed:no/such", "bert"]
)
async def test_what_names_no_reranker_is_refused_with_what_would(spec: str) -> None:
    with pytest.raises(SetupError, match=r"use one of|is neither a folder nor"):
        await create_reranker(spec)
