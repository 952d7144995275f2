"""Profiles: options under a name. Some are ours; a service, a tenant or a namespace may add its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PROFILES: Mapping[str, Mapping[str, Any]] = {
    "exact": {"weights": {"keyword": 1.0, "vector": 0.0, "graph": 0.0}},
    "semantic": {"weights": {"keyword": 0.0, "vector": 1.0, "graph": 0.0}},
    "roaming": {"weights": {"keyword": 0.0, "vector": 0.5, "graph": 0.5}},
    "balanced": {"weights": {"keyword": 0.4, "vector": 0.4, "graph": 0.2}},
}
