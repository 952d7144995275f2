"""Rerankers: what reads the query and each of the best hits together, and says how well they fit. One class for each
kind, and `create_reranker` to choose.

A score is from 0 to 1. Models and servers that answer with logits, which is anything outside of that, are put through
the logistic function. `weight` is how much a reranker's word counts beside the fused score where a call does not say:
all for a cross-encoder, half for word vectors, as measured (docs/ranking.md).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import httpx
import numpy as np
from numpy.typing import NDArray

from service.errors import SetupError, TierInvalid, TierUnavailable
from service.stores.embedder import load_wordllama

NONE = "none"
FORMS = "none | late | fastembed:<model or folder> | tei:<url> | cohere:<url>"
TEXT_CHARS = 4000
"""As much of a document as is read: what cross-encoders take, and then some."""
_TIMEOUT = httpx.Timeout(30.0, connect=3.0)  # the search's own deadline is shorter


class Reranker(Protocol):
    """A query and texts in, a score a text out."""

    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> float: ...

    @property
    def absolute(self) -> bool:
        """Whether a score is a probability, and not only higher for what fits better."""
        ...

    async def score(self, query: str, texts: Sequence[str]) -> list[float]: ...

    async def close(self) -> None: ...


async def create_reranker(spec: str, *, model: str = "", api_key: str | None = None) -> Reranker | None:
    """The reranker that a setting such as `tei:http://127.0.0.1:8081` names."""
    kind, _, rest = spec.strip().partition(":")
    if spec == NONE:
        return None
    if spec == "late":
        return LateInteraction()
    if kind == "fastembed" and rest:
        return await asyncio.to_thread(CrossEncoder, rest)
    if kind in _SHAPES and rest.startswith(("http://", "https://")):
        return _http(kind, rest, model, api_key)
    raise SetupError(f"BRAID_RERANKER: {spec!r} is no reranker; use one of: {FORMS}")


def as_probabilities(scores: Sequence[float]) -> list[float]:
    """As they are, where all are from 0 to 1; else they are logits."""
    if all(0 <= score <= 1 for score in scores):
        return list(scores)
    return [_logistic(score) for score in scores]


def _logistic(score: float) -> float:
    return 1 / (1 + math.exp(-score)) if score >= 0 else math.exp(score) / (1 + math.exp(score))


class LateInteraction:
    """MaxSim over the word vectors of the bundled embedder (Khattab and Zaharia, "ColBERT", 2020): every word of the
    query looks for the word of the document that is nearest to it. A word counts by the length of its vector, which
    the embedder learned as its importance. Works offline, on the event loop's side threads.
    """

    name = "late"
    weight = 0.5
    absolute = False

    def __init__(self) -> None:
        self._model: Any = None
        self._loading = asyncio.Lock()

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        if self._model is None:
            async with self._loading:
                self._model = self._model or await asyncio.to_thread(load_wordllama)
        return await asyncio.to_thread(self._score, query, [text[:TEXT_CHARS] for text in texts])

    async def close(self) -> None:
        self._model = None

    def _score(self, query: str, texts: list[str]) -> list[float]:
        wanted, *documents = (self._vectors(tokens.ids) for tokens in self._model.tokenize([query, *texts]))
        return [maxsim(wanted, document) for document in documents]

    def _vectors(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        known = np.minimum(np.asarray(tokens, dtype=np.int64), len(self._model.embedding) - 1)
        vectors: NDArray[np.float32] = self._model.embedding[known]
        return vectors


def maxsim(query: NDArray[np.float32], document: NDArray[np.float32]) -> float:
    """The mean over the query's words of the best cosine with a word of the document, weighted by their lengths."""
    lengths = np.linalg.norm(query, axis=1)
    total = float(lengths.sum())
    if not total or not len(document):
        return 0.0
    directions = document / np.maximum(np.linalg.norm(document, axis=1, keepdims=True), 1e-9)
    best = (query @ directions.T).max(axis=1)  # cosine times the word's own length
    return min(1.0, max(0.0, float(best.sum()) / total))


class CrossEncoder:
    """A cross-encoder run by ONNX in this process. Building one loads the model: do it on a thread."""

    weight = 1.0
    absolute = True

    def __init__(self, source: str) -> None:
        self.name = f"fastembed:{source}"
        self._model = _load_cross_encoder(source)

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        cut = [text[:TEXT_CHARS] for text in texts]
        try:
            scores = await asyncio.to_thread(lambda: [float(score) for score in self._model.rerank(query, cut)])
        except (RuntimeError, ValueError) as error:
            raise TierUnavailable(f"reranker {self.name} failed: {type(error).__name__}") from error
        return _checked(self.name, scores, len(texts))

    async def close(self) -> None:
        """The model goes with this object."""


def _load_cross_encoder(source: str) -> Any:
    try:
        from fastembed.rerank.cross_encoder import TextCrossEncoder  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise SetupError("fastembed is not installed: pip install 'braid-search[fastembed]'") from error
    folder = Path(source)
    known = [str(each["model"]) for each in TextCrossEncoder.list_supported_models()]
    if not folder.is_dir() and source not in known:
        raise SetupError(f"fastembed:{source} is neither a folder nor one of {', '.join(known)}")
    try:
        return _from_folder(folder, known) if folder.is_dir() else TextCrossEncoder(source)
    except Exception as error:
        raise SetupError(f"fastembed:{source} cannot be loaded: {error}") from error


def _from_folder(folder: Path, known: Sequence[str]) -> Any:
    """A folder with a tokenizer and `model.onnx`, or `onnx/model.onnx`; registered once under its own name."""
    from fastembed.common.model_description import ModelSource  # noqa: PLC0415 - an extra
    from fastembed.rerank.cross_encoder import TextCrossEncoder  # noqa: PLC0415

    name = f"folder:{folder.resolve()}".lower()
    if name not in known:
        file = "model.onnx" if (folder / "model.onnx").exists() else "onnx/model.onnx"
        TextCrossEncoder.add_custom_model(name, ModelSource(hf=name), file)
    return TextCrossEncoder(name, specific_model_path=str(folder))


class HttpReranker:
    """A server that reranks: Hugging Face's TEI, or what speaks as Cohere and Jina do."""

    weight = 1.0
    absolute = True

    def __init__(self, kind: str, url: str, model: str, api_key: str | None) -> None:
        self._url = httpx.URL(url)
        self._model = model
        self._body, self._read = _SHAPES[kind]
        self.name = f"{kind}:{self._url.host}"
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.AsyncClient(headers=headers, timeout=_TIMEOUT)

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        reply = await self._post(self._body(self._model, query, [text[:TEXT_CHARS] for text in texts]))
        try:
            scores = dict(self._read(reply.json()))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise TierInvalid(f"reranker {self.name}: the reply cannot be read") from error
        if sorted(scores) != list(range(len(texts))):
            raise TierInvalid(f"reranker {self.name}: {len(scores)} scores do not answer {len(texts)} texts")
        return _checked(self.name, [scores[at] for at in range(len(texts))], len(texts))

    async def close(self) -> None:
        await self._client.aclose()

    async def _post(self, body: Mapping[str, Any]) -> httpx.Response:
        """The reasons name the host and the status only: bodies and URLs can carry a key."""
        try:
            reply = await self._client.post(self._url, json=body)
        except (httpx.HTTPError, RuntimeError) as error:
            raise TierUnavailable(f"reranker {self.name}: no answer ({type(error).__name__})") from error
        if reply.status_code != 200:
            raise TierUnavailable(f"reranker {self.name}: answered with status {reply.status_code}")
        return reply


def _http(kind: str, url: str, model: str, api_key: str | None) -> HttpReranker:
    if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
        raise SetupError("BRAID_RERANKER_API_KEY holds characters that no HTTP header can carry")
    try:
        return HttpReranker(kind, url, model, api_key)
    except httpx.InvalidURL as error:
        raise SetupError(f"BRAID_RERANKER: the URL cannot be read; use one of: {FORMS}") from error


def _tei_body(model: str, query: str, texts: Sequence[str]) -> dict[str, Any]:
    return {"query": query, "texts": list(texts), "truncate": True, "raw_scores": False}


def _tei_scores(reply: Any) -> list[tuple[int, float]]:
    return [(int(each["index"]), float(each["score"])) for each in reply]


def _cohere_body(model: str, query: str, texts: Sequence[str]) -> dict[str, Any]:
    return {"model": model, "query": query, "documents": list(texts), "top_n": len(texts), "return_documents": False}


def _cohere_scores(reply: Any) -> list[tuple[int, float]]:
    return [(int(each["index"]), float(each["relevance_score"])) for each in reply["results"]]


_Body = Callable[[str, str, Sequence[str]], dict[str, Any]]
_Read = Callable[[Any], list[tuple[int, float]]]
_SHAPES: Mapping[str, tuple[_Body, _Read]] = {
    "tei": (_tei_body, _tei_scores),
    "cohere": (_cohere_body, _cohere_scores),
}


def _checked(name: str, scores: Sequence[float], count: int) -> list[float]:
    if len(scores) != count or not all(map(math.isfinite, scores)):
        raise TierInvalid(f"reranker {name}: the reply holds something that is no score")
    return as_probabilities(scores)
