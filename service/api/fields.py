"""The fields that bodies are made of, each with its bound."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from service.api.limits import AtMost, limits

_SURROGATE = re.compile("[\ud800-\udfff]")
TAKEN = ("/neighbors", "/status")  # what follows a document's id where something about it is asked


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


def _reachable(id: str) -> str:
    if id.endswith(TAKEN):
        raise ValueError(f"must not end with {' or '.join(TAKEN)}: that address is taken")
    return id


def _written(moment: Any) -> Any:
    """Text that begins with a date: pydantic would take a number of seconds too, also as text."""
    if not isinstance(moment, datetime) and not (isinstance(moment, str) and moment[4:5] == "-"):
        raise ValueError("must be a moment such as 2026-01-31T12:00:00Z")
    return moment


def _utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("must lie between the years 1 and 9999, in UTC") from None


def _rounded(vector: list[float]) -> list[float]:
    """As the engines keep it: numbers too small for 32 bits become 0, where PostgreSQL would refuse them."""
    return np.asarray(vector, np.float32).tolist()  # type: ignore[no-any-return]


def _whole(number: Any) -> Any:
    """In JSON 5.0 is an integer, as 5 is."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _few_terms(text: str) -> str:
    most = limits().max_query_terms
    if len(text.split()) > most:
        raise ValueError(f"must have at most {most} terms")
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def _bounded(metadata: dict[str, Any]) -> dict[str, Any]:
    """Refuses what some engine could not hold: too many values, too deep, too long, NUL, NaN, huge integers."""
    values, levels = limits().max_metadata_values, limits().max_metadata_depth
    count = 0
    todo: list[tuple[Any, int]] = [(metadata, 0)]
    while todo:
        value, depth = todo.pop()
        count += 1
        if count > values:
            raise ValueError(f"must hold at most {values} keys and values")
        if depth > levels:
            raise ValueError(f"must nest at most {levels} levels deep")
        if isinstance(value, dict):
            todo += [(key, depth) for key in value] + [(v, depth + 1) for v in value.values()]
        elif isinstance(value, list):
            todo += [(v, depth + 1) for v in value]
        else:
            check_scalar(value)
    return metadata


def check_scalar(value: Any) -> None:
    if isinstance(value, str):
        most = limits().max_metadata_chars
        if len(value) > most:
            raise ValueError(f"must hold strings of at most {most} characters")
        _storable(value)
    elif isinstance(value, int) and abs(value) > 2**53:
        raise ValueError("must hold integers between -2^53 and 2^53")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must hold finite numbers only")


Text = Annotated[str, AfterValidator(_storable)]
QueryText = Annotated[Text, AtMost("max_query_chars", "characters"), AfterValidator(_few_terms)]
SomeQueryText = Annotated[QueryText, AfterValidator(_not_blank)]
Name = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_printable)]
Id = Annotated[str, Field(min_length=1, max_length=512), AfterValidator(_printable), AfterValidator(_decoded)]
NewId = Annotated[Id, AfterValidator(_reachable)]
Namespace = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.:/@-]+$")]
# In a body true is no number, and neither is "5": numbers are strict there. In a URL everything is text.
WHOLE = BeforeValidator(_whole)
Truth = Annotated[bool, Field(strict=True)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Unit = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
Namespaces = Annotated[list[Namespace], Field(min_length=1), AtMost("max_namespaces", "items")]
# PostgreSQL and Qdrant hold 32-bit floats, and a length is a sum of squares: 8,192 of these still fit.
Coordinate = Annotated[float, Field(strict=True, ge=-1e17, le=1e17, allow_inf_nan=False)]
Vector = Annotated[list[Coordinate], Field(min_length=1), AtMost("max_vector", "items"), AfterValidator(_rounded)]
Moment = Annotated[AwareDatetime, BeforeValidator(_written), AfterValidator(_utc)]
Metadata = Annotated[dict[str, Any], AfterValidator(_bounded)]


class Strict(BaseModel):
    """Unknown fields are rejected, so a typing error is seen."""

    model_config = ConfigDict(extra="forbid")
