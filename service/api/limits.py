"""How much a request may ask for. Every bound is a setting, and holds for requests to the application that has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema


class Limits(BaseModel):
    """The bounds, with defaults. `Settings` inherits them, so each is also a BRAID_* variable."""

    model_config = ConfigDict(frozen=True)

    max_body_bytes: int = Field(16 * 2**20, ge=1024, le=2**30, description="bytes of a body; NDJSON is bound by line")
    max_line_bytes: int = Field(2 * 2**20, ge=1024, le=2**26, description="bytes of a line of NDJSON")
    max_json_depth: int = Field(32, ge=8, le=200, description="levels that the JSON of a body nests")
    max_query_chars: int = Field(1024, ge=16, le=16_384, description="characters of a query")
    max_query_terms: int = Field(64, ge=1, le=1024, description="terms of a query")
    max_vector: int = Field(8192, ge=1, le=65_536, description="numbers of a vector")
    max_filter_nodes: int = Field(32, ge=1, le=1024, description="tests of a filter")
    max_filter_depth: int = Field(4, ge=1, le=8, description="levels that a filter nests")
    max_results: int = Field(100, ge=10, le=1000, description="results of a search: its `limit`")
    max_page: int = Field(1000, ge=100, le=10_000, description="documents of a page: the `limit` of a list")
    max_neighbors: int = Field(200, ge=50, le=10_000, description="neighbours of a document: their `limit`")
    max_namespaces: int = Field(256, ge=1, le=4096, description="namespaces that a call names")
    max_bulk_items: int = Field(1000, ge=1, le=100_000, description="items of a bulk call; NDJSON has no such bound")
    max_title_chars: int = Field(1024, ge=1, le=65_536, description="characters of a title")
    max_content_chars: int = Field(262_144, ge=1, le=4 * 2**20, description="characters of a document's content")
    max_tags: int = Field(64, ge=0, le=1024, description="tags of a document")
    max_entities: int = Field(128, ge=0, le=1024, description="entities of a document")
    max_links: int = Field(256, ge=0, le=4096, description="links that a document declares")
    max_metadata_values: int = Field(256, ge=1, le=16_384, description="keys and values in a document's metadata")
    max_metadata_depth: int = Field(8, ge=1, le=64, description="levels that metadata nests")
    max_metadata_chars: int = Field(4096, ge=1, le=65_536, description="characters of a string in metadata or a filter")

    @classmethod
    def of(cls, settings: Limits) -> Limits:
        return cls(**{name: getattr(settings, name) for name in cls.model_fields})


_current: ContextVar[Limits] = ContextVar("limits", default=Limits())  # noqa: B039 - it is frozen


def limits() -> Limits:
    """Those of the application that serves this request; the defaults where there is none."""
    return _current.get()


@contextmanager
def applying(these: Limits) -> Iterator[None]:
    token = _current.set(these)
    try:
        yield
    finally:
        _current.reset(token)


_KEYWORDS = {"string": "maxLength", "array": "maxItems", "object": "maxProperties", "integer": "maximum"}


@dataclass(frozen=True, slots=True)
class AtMost:
    """Holds a field to the limit of this name. Lengths are looked at first, before anything else is done with it."""

    name: str
    unit: Literal["characters", "items"] | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if self.unit is None:
            return core_schema.no_info_after_validator_function(self._small, handler(source))
        return core_schema.no_info_before_validator_function(self._short, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        described = handler(schema)
        return described | {_KEYWORDS[described["type"]]: getattr(limits(), self.name)}

    def _short(self, value: Any) -> Any:
        most = getattr(limits(), self.name)
        if isinstance(value, str if self.unit == "characters" else (list, dict)) and len(value) > most:
            raise ValueError(f"must have at most {most} {self.unit}")
        return value

    def _small(self, value: int) -> int:
        most = getattr(limits(), self.name)
        if value > most:
            raise ValueError(f"must be at most {most}")
        return value


_ROUND = bytes.maketrans(b"{}", b"[]")
_NEITHER = bytes(set(range(256)) - set(b'[]{}"'))


def too_deep(body: bytes, most: int) -> bool:
    """Whether JSON nests deeper than this, told in a few passes over its brackets, before anything is parsed.

    Without escapes, text stands between odd and even quotes; two quotes side by side change nothing behind them.
    Of the brackets outside, each pass removes the innermost pairs: one level.
    """
    if body.count(b"[") + body.count(b"{") <= most:
        return False
    told = body.replace(rb"\\", b"").replace(rb"\"", b"").translate(_ROUND, _NEITHER).replace(b'""', b"")
    brackets = b"".join(told.split(b'"')[::2])
    deeper = b"[" * (most + 1)
    for _ in range(most):
        if deeper in brackets or b"[]" not in brackets:
            break
        brackets = brackets.replace(b"[]", b"")
    return deeper in brackets or b"[]" in brackets
