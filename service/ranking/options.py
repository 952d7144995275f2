"""Options settled: the caller's own over its namespace's, over its tenant's, over the service's.

Each layer is a mapping such as `/v1/search` takes it, checked where it came in. Mappings in it are merged key by key,
everything else is replaced. A layer's profile is unfolded beneath the layer itself, above those before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from service.errors import InvalidInput
from service.model import FusionOptions, GroupOptions, RankingOptions, ShapingOptions
from service.ranking.profiles import PROFILES

Layer = Mapping[str, Any]
T = TypeVar("T", FusionOptions, ShapingOptions, GroupOptions)


def settle(layers: Sequence[Layer]) -> RankingOptions:
    """What the layers come to, the last one winning. Raises `InvalidInput` for a profile that none of them has."""
    profiles = dict(PROFILES)
    for layer in layers:
        profiles |= layer.get("profiles", {})
    merged: Layer = {}
    for layer in layers:
        merged = merge(merge(merged, _profile(layer.get("profile"), profiles)), layer)
    return _built(merged)


def merge(under: Layer, over: Layer) -> dict[str, Any]:
    """Both, key by key; where both have a value that is no mapping, the upper one's."""
    result = dict(under)
    for name, value in over.items():
        below = result.get(name)
        result[name] = merge(below, value) if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return result


def _profile(name: str | None, profiles: Mapping[str, Layer]) -> Layer:
    if name is None:
        return {}
    if name not in profiles:
        raise InvalidInput("profile", f"no profile is called {name!r}; there are {', '.join(sorted(profiles))}")
    return profiles[name]


def _built(merged: Layer) -> RankingOptions:
    """Unknown names are those of a newer version beside us: left out."""
    known = {each.name for each in fields(RankingOptions)} - {"fusion", "shaping", "group_by"}
    plain = {name: _frozen(value) for name, value in merged.items() if name in known}
    group = merged.get("group_by")
    return RankingOptions(
        **plain,
        fusion=_part(FusionOptions, merged.get("fusion", {})),
        shaping=_part(ShapingOptions, merged.get("shaping", {})),
        group_by=None if group is None else _part(GroupOptions, group),
    )


def _part(kind: type[T], given: Layer) -> T:
    known = {each.name for each in fields(kind)}
    return kind(**{name: _frozen(value) for name, value in given.items() if name in known})


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _frozen(each) for name, each in value.items()}
    return tuple(value) if isinstance(value, list) else value
