"""The fields that bodies are made of, each with its bound."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

MAX_QUERY = 1024
MAX_TERMS = 64
MAX_CONTENT = 262_144
MAX_METADATA_VALUES = 256
MAX_DEPTH = 8
MAX_VECTOR = 8192
MAX_FILTERS = 32
MAX_FILTER_DEPTH = 4
MAX_BULK = 1000

_SURROGATE = re.compile("[\ud800-\udfff]")


def _storable(text: str) -> str:
    """What PostgreSQL can hold: no NUL, no lone surrogate."""
    if "\x00" in text:
        raise ValueError("must not contain NUL characters")
    if not text.isascii() and _SURROGATE.search(text):
        raise ValueError("must be valid Unicode: it contains a lone surrogate")
    return text


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must not contain control characters")
    return text


def _decoded(id: str) -> str:
    """Bytes that are not UTF-8 arrive as U+FFFD, so two ids in a path could become one."""
    if "\ufffd" in id:
        raise ValueError("must be valid UTF-8")
    return id


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def _few_terms(text: str) -> str:
    if len(text.split()) > MAX_TERMS:
        raise ValueError(f"must have at most {MAX_TERMS} terms")
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def _finite(vector: list[float]) -> list[float]:
    if not all(map(math.isfinite, vector)):
        raise ValueError("must hold finite numbers only")
    return vector


def _bounded(metadata: dict[str, Any]) -> dict[str, Any]:
    """Refuses what some engine could not hold: too many values, too deep, too long, NUL, NaN, huge integers."""
    count = 0
    todo: list[tuple[Any, int]] = [(metadata, 0)]
    while todo:
        value, depth = todo.pop()
        count += 1
        if count > MAX_METADATA_VALUES or depth > MAX_DEPTH:
            raise ValueError(f"must hold at most {MAX_METADATA_VALUES} values, nested at most {MAX_DEPTH} deep")
        if isinstance(value, dict):
            todo += [(key, depth) for key in value] + [(v, depth + 1) for v in value.values()]
        elif isinstance(value, list):
            todo += [(v, depth + 1) for v in value]
        else:
            check_scalar(value)
    return metadata


def check_scalar(value: Any) -> None:
    if isinstance(value, str):
        if len(value) > 4096:
            raise ValueError("must hold strings of at most 4096 characters")
        _storable(value)
    elif isinstance(value, int) and abs(value) > 2**53:
        raise ValueError("must hold integers between -2^53 and 2^53")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must hold finite numbers only")


Text = Annotated[str, AfterValidator(_storable)]
QueryText = Annotated[Text, Field(max_length=MAX_QUERY), AfterValidator(_few_terms)]
SomeQueryText = Annotated[QueryText, AfterValidator(_not_blank)]
Name = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_printable)]
Id = Annotated[str, Field(min_length=1, max_length=512), AfterValidator(_printable), AfterValidator(_decoded)]
Namespace = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.:/@-]+$")]
Unit = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Vector = Annotated[list[float], Field(min_length=1, max_length=MAX_VECTOR), AfterValidator(_finite)]
Moment = Annotated[AwareDatetime, AfterValidator(_utc)]
Metadata = Annotated[dict[str, Any], AfterValidator(_bounded)]


class Strict(BaseModel):
    """Unknown fields are rejected, so a typing error is seen."""

    model_config = ConfigDict(extra="forbid")
