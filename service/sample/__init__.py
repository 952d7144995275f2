"""The sample tenant: the papers of Lantern Ridge, a company of sixteen that flies one probe and keeps one dish."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

# (query, tier, document id): each tier finds something here that the other two miss or rank low.
SHOWCASE: tuple[tuple[str, str, str], ...] = (
    ("E-4471", "keyword", "inc-e4471"),
    ("PN-88213-C", "keyword", "hb-thruster-valves"),
    ("77Q-19", "keyword", "inc-wrong-seal"),
    ("pass 812", "keyword", "inc-e4471"),
    ("wages and compensation", "vector", "hb-salary"),
    ("cooking a meal", "vector", "notes-soup"),
    ("exhausted staff fatigue overnight", "vector", "hb-rest"),
    ("Siskin", "graph", "notes-wheel-bearing"),
    ("Jonas Achterberg", "graph", "notes-jonas-binder"),
    ("Marguerite Vance", "graph", "hb-filter-wheel"),
    ("Halvorsen", "graph", "inc-panel-hit"),
)


def documents() -> Iterator[dict[str, Any]]:
    """Every sample document, in the shape that the API takes, with its `links` to others."""
    with files(__name__).joinpath("documents.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
