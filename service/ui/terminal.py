"""A search's answer, drawn for a terminal: a row a result, with a bar a tier."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table
from rich.text import Text

# A colour and, for a pipe or a printer, a shade of its own.
COLOURS = {"keyword": "cyan", "vector": "magenta", "graph": "yellow"}
SHADES = {"keyword": "█", "vector": "▓", "graph": "░"}
WIDTH = 24


def drawn(answer: dict[str, Any], *, debug: bool) -> Iterator[Table | Text]:
    """The results, every tier's numbers if wanted, and what became of each tier."""
    yield _table(answer)
    if debug:
        for result in answer["results"]:
            yield from (Text(plain(line), "dim") for line in _numbers(result))
    for name, tier in answer["tiers"].items():
        reason = f" ({tier['reason']})" if "reason" in tier else ""
        said = f" {name}: {tier['status']}{reason}, {tier['hits']} hits, {tier['took_ms']} ms"
        yield Text(SHADES[name], COLOURS[name]).append(plain(said), "default")


def plain(text: str) -> str:
    """Without what a terminal would take as an order: documents hold anything."""
    return "".join(char if char.isprintable() else " " for char in text)


def _table(answer: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("score", "contributions", "namespace", "id", "title"):
        table.add_column(heading, overflow="fold", no_wrap=heading in {"score", "contributions"})
    whole = sum(answer["weights"].values()) or 1.0
    for result in answer["results"]:
        words = (result["namespace"], result["id"], result["title"] or result["content"][:80])
        bar = _bar(result["tiers"], whole)
        table.add_row(f"{result['score']:.3f}", bar, *(Text(plain(each)) for each in words))
    return table


def _bar(tiers: dict[str, Any], whole: float) -> Text:
    """One block a tier, as long as its contribution."""
    bar = Text(no_wrap=True)
    for name, share in tiers.items():
        bar.append(SHADES[name] * max(1, round(WIDTH * share["contribution"] / whole)), style=COLOURS[name])
    return bar


def _numbers(result: dict[str, Any]) -> Iterator[str]:
    yield f"{result['id']} ({result['namespace']})"
    for name, share in result["tiers"].items():
        yield (
            f"  {name} #{share['rank']}: raw {share['raw']:.4f}, normalised {share['normalised']:.3f} "
            f"({share['rule']}), weight {share['weight']:.2f}, gives {share['contribution']:.3f}"
        )
        if "path" in share:
            yield "    " + " ".join(f"-{step['via']}-> {step['to']}" for step in share["path"])
