"""Embedders: what turns text into vectors. One class for each kind, and `create_embedder` to choose.

A text without a word in it gets the zero vector from all of them: near to nothing, and no reason to ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import httpx
import numpy as np

from service.errors import SetupError, TierInvalid, TierUnavailable

NONE = "none"
FORMS = "wordllama | fastembed:<model or folder> | http:<url> | none"
# A static embedder knows words, not sentences: measured on 17 collections, keywords must lead it.
STATIC_WEIGHTS: Mapping[str, float] = {"keyword": 0.65, "vector": 0.25, "graph": 0.1}
WEIGHTS: Mapping[str, float] = {"keyword": 0.3, "vector": 0.6, "graph": 0.1}

_WORDLLAMA_SIZE = 256
_WORDLLAMA_CHARS = 16_000  # a mean over more words says nothing new
_WORDLLAMA_BATCH = 64
_MINILM = "sentence-transformers/all-MiniLM-L6-v2"
_HTTP_BATCH = 64
_REFUSED = (400, 413, 422)  # the text's fault: without it the others can be embedded
_HTTP_TIMEOUT = httpx.Timeout(30.0, connect=3.0)

Vector = Sequence[float]


class Embedder(Protocol):
    """Text in, vectors out. `default_weights` are the tier weights that suit its vectors."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str:
        """What vectors must have in common to be compared: never mixed with those of another."""
        ...

    @property
    def dimension(self) -> int: ...

    @property
    def default_weights(self) -> Mapping[str, float]: ...

    async def embed_query(self, text: str) -> Vector: ...

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]: ...

    async def close(self) -> None: ...


async def create_embedder(
    spec: str, *, model: str = "", api_key: str | None = None, dimension: int | None = None
) -> Embedder:
    """The embedder that a setting such as `fastembed:BAAI/bge-small-en-v1.5` names."""
    kind, _, rest = spec.strip().partition(":")
    if spec.startswith(("http://", "https://")):
        return await _create_http(spec, model, api_key, dimension)
    if kind == "http" and rest.startswith(("http://", "https://")):
        return await _create_http(rest, model, api_key, dimension)
    if spec == NONE:
        return NoEmbedder(_required(dimension))
    if spec == "wordllama":
        return _agreed(WordLlamaEmbedder(), dimension)
    if kind == "fastembed" and rest:
        return _agreed(await asyncio.to_thread(FastEmbedEmbedder, rest), dimension)
    raise SetupError(f"BRAID_EMBEDDER: {spec!r} is no embedder; use one of: {FORMS}")


def _required(dimension: int | None) -> int:
    if dimension is None:
        raise SetupError("BRAID_EMBEDDER=none needs BRAID_EMBEDDER_DIMENSION: the size of the vectors you will send")
    return dimension


def _agreed(embedder: Embedder, dimension: int | None) -> Embedder:
    if dimension not in (None, embedder.dimension):
        raise SetupError(
            f"BRAID_EMBEDDER_DIMENSION is {dimension}, but {embedder.name} gives {embedder.dimension}: unset it"
        )
    return embedder


async def _around_blanks(
    texts: Sequence[str], dimension: int, embed: Callable[[list[str]], Awaitable[list[Vector]]]
) -> list[Vector]:
    """Embed the texts that say something; the others get the zero vector."""
    spoken = [text for text in texts if text.strip()]
    vectors = iter(await embed(spoken) if spoken else [])
    return [next(vectors) if text.strip() else [0.0] * dimension for text in texts]


def _unit_rows(rows: Any) -> list[Vector]:
    """Rows of length one. What has no direction, or is not finite, becomes the zero vector."""
    matrix = np.asarray(rows, dtype=np.float64)
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    usable = np.isfinite(lengths) & (lengths > 0)
    unit = np.divide(matrix, lengths, out=np.zeros_like(matrix), where=usable)
    vectors: list[Vector] = unit.tolist()
    return vectors


class WordLlamaEmbedder:
    """Static word vectors whose weights come in the wheel: no download, 0.03 ms a query."""

    name = model = "wordllama"
    dimension = _WORDLLAMA_SIZE
    default_weights = STATIC_WEIGHTS

    def __init__(self) -> None:
        self._model: Any = None
        self._loading = asyncio.Lock()

    async def embed_query(self, text: str) -> Vector:
        """On the event loop: a hop to a thread would cost more than the embedding."""
        model = await self._loaded()
        return self._embed(model, [text])[0] if text.strip() else [0.0] * self.dimension

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        model = await self._loaded()
        return await _around_blanks(texts, self.dimension, lambda some: asyncio.to_thread(self._embed, model, some))

    async def close(self) -> None:
        self._model = None

    async def _loaded(self) -> Any:
        if self._model is None:
            async with self._loading:
                self._model = self._model or await asyncio.to_thread(_load_wordllama)
        return self._model

    @staticmethod
    def _embed(model: Any, texts: list[str]) -> list[Vector]:
        """The mean of each text's word vectors. The library's own way pads a batch to its longest text, at twice the
        cost; the vectors are the same.
        """
        rows = np.zeros((len(texts), _WORDLLAMA_SIZE), dtype=np.float32)
        for start in range(0, len(texts), _WORDLLAMA_BATCH):
            batch = [text[:_WORDLLAMA_CHARS] for text in texts[start : start + _WORDLLAMA_BATCH]]
            for row, tokens in enumerate(model.tokenize(batch), start):
                if tokens.ids:
                    words = np.minimum(tokens.ids, len(model.embedding) - 1)
                    rows[row] = model.embedding[words].mean(axis=0)
        return _unit_rows(rows)


def _load_wordllama() -> Any:
    """Imported late, as the import alone takes longer than all the rest of a start."""
    try:
        import wordllama  # noqa: PLC0415

        model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    except (ImportError, OSError, ValueError) as error:
        raise TierUnavailable(f"embedder wordllama cannot be loaded: {type(error).__name__}") from error
    model.tokenizer.no_padding()
    return model


class FastEmbedEmbedder:
    """A sentence transformer run by ONNX in this process. Building one loads the model: do it on a thread."""

    default_weights = WEIGHTS

    def __init__(self, source: str) -> None:
        self.name = self.model = f"fastembed:{source}"
        self._model, self.dimension = _load_fastembed(source)

    async def embed_query(self, text: str) -> Vector:
        vectors = await _around_blanks([text], self.dimension, lambda some: self._embed(self._model.query_embed, some))
        return vectors[0]

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        return await _around_blanks(texts, self.dimension, lambda some: self._embed(self._model.passage_embed, some))

    async def close(self) -> None:
        """The model goes with this object."""

    async def _embed(self, embed: Callable[[list[str]], Any], texts: list[str]) -> list[Vector]:
        try:
            return await asyncio.to_thread(lambda: _unit_rows(list(embed(texts))))
        except (RuntimeError, ValueError) as error:
            raise TierUnavailable(f"embedder {self.name} failed: {type(error).__name__}") from error


def _load_fastembed(source: str) -> tuple[Any, int]:
    try:
        from fastembed import TextEmbedding  # noqa: PLC0415
    except ImportError as error:
        raise SetupError("the fastembed embedder is not installed: pip install 'braid-search[fastembed]'") from error
    sizes = {each["model"]: int(each["dim"]) for each in TextEmbedding.list_supported_models()}
    folder = Path(source)
    model = _model_of_folder(folder, sizes) if folder.is_dir() else source
    if model not in sizes:
        raise SetupError(f"fastembed:{source} is neither a folder nor a model that fastembed knows")
    options = {"specific_model_path": str(folder)} if folder.is_dir() else {}
    try:
        return TextEmbedding(model, **options), sizes[model]
    except Exception as error:
        raise SetupError(f"fastembed:{source} cannot be loaded: {error}") from error


def _model_of_folder(folder: Path, known: Mapping[str, int]) -> str:
    name = folder.resolve().name.lower()
    return next((model for model in known if model.rpartition("/")[2].lower() == name), _MINILM)


async def _create_http(url: str, model: str, api_key: str | None, dimension: int | None) -> Embedder:
    if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
        raise SetupError("BRAID_EMBEDDER_API_KEY holds characters that no HTTP header can carry")
    try:
        embedder = HttpEmbedder(url, model, api_key, dimension or 0)
    except httpx.InvalidURL as error:
        raise SetupError(f"BRAID_EMBEDDER: the URL cannot be read; use one of: {FORMS}") from error
    if dimension is None:
        await _learn_dimension(embedder)
    return embedder


async def _learn_dimension(embedder: HttpEmbedder) -> None:
    try:
        embedder.dimension = len(await embedder.embed_query("dimension"))
    except (TierUnavailable, TierInvalid) as error:
        await embedder.close()
        raise SetupError(f"{error}; set BRAID_EMBEDDER_DIMENSION to start without asking it") from error


class HttpEmbedder:
    """Any server that speaks OpenAI's embeddings call. A dimension of 0 is one that is not yet known."""

    default_weights = WEIGHTS

    def __init__(self, url: str, model: str, api_key: str | None, dimension: int) -> None:
        self._url = httpx.URL(url)
        self._model = model
        self.name = f"http:{self._url.host}"
        self.model = f"{self.name} {model}".strip()
        self.dimension = dimension
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.AsyncClient(headers=headers, timeout=_HTTP_TIMEOUT)

    async def embed_query(self, text: str) -> Vector:
        return (await self.embed_documents([text]))[0]

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        return await _around_blanks(texts, self.dimension, self._embed)

    async def close(self) -> None:
        await self._client.aclose()

    async def _embed(self, texts: list[str]) -> list[Vector]:
        vectors: list[Vector] = []
        for start in range(0, len(texts), _HTTP_BATCH):
            vectors += await self._embed_batch(texts[start : start + _HTTP_BATCH])
        return vectors

    async def _embed_batch(self, texts: list[str]) -> list[Vector]:
        reply = await self._post({"model": self._model, "input": texts})
        try:
            items = sorted(reply.json()["data"], key=lambda item: item["index"])
            rows = [np.asarray(item["embedding"]) for item in items]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise TierInvalid(f"embedder {self.name}: the reply cannot be read") from error
        if [item["index"] for item in items] != list(range(len(texts))):
            raise TierInvalid(f"embedder {self.name}: {len(items)} vectors do not answer {len(texts)} texts")
        return [self._checked(row) for row in rows]

    async def _post(self, body: Mapping[str, Any]) -> httpx.Response:
        """The reasons name the host and the status only: bodies and URLs can carry a key."""
        try:
            reply = await self._client.post(self._url, json=body)
        except (httpx.HTTPError, RuntimeError) as error:
            raise TierUnavailable(f"embedder {self.name}: no answer ({type(error).__name__})") from error
        if reply.status_code in _REFUSED:
            raise TierInvalid(f"embedder {self.name}: refused a text with status {reply.status_code}")
        if reply.status_code != 200:
            raise TierUnavailable(f"embedder {self.name}: answered with status {reply.status_code}")
        return reply

    def _checked(self, row: Any) -> Vector:
        if row.ndim != 1 or row.dtype.kind not in "if" or not row.size or not np.isfinite(row).all():
            raise TierInvalid(f"embedder {self.name}: the reply holds something that is no vector")
        if self.dimension and row.size != self.dimension:
            raise TierInvalid(f"embedder {self.name}: vectors of {row.size} dimensions, not {self.dimension}")
        vector: Vector = row.astype(float).tolist()
        return vector


class NoEmbedder:
    """For callers who bring their own vectors."""

    name = model = NONE
    default_weights = WEIGHTS

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension

    async def embed_query(self, text: str) -> Vector:
        raise TierUnavailable("no embedder is configured: send `vector`")

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        raise TierUnavailable("no embedder is configured: send `vector`")

    async def close(self) -> None:
        """Nothing is held."""
