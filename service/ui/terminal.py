"""What the command prints: a search's answer, a row a result with a bar a tier; and an evaluation's figures."""

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


def figures(report: dict[str, Any]) -> Iterator[Table | Text]:
    """A row a way to search, the fused one as the measure of the others; then what it was measured on."""
    table = Table(box=None, pad_edge=False)
    fused, depth = report["ways"]["fused"]["ndcg@10"], f"recall@{report['limit']}"
    for heading in ("", "nDCG@10", "to fused", depth.title(), "MRR@10", "p50 ms", "p95 ms"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for way, found in report["ways"].items():
        to_fused = "" if way == "fused" else f"{found['ndcg@10'] - fused:+.3f}"
        quality = (f"{found['ndcg@10']:.3f}", to_fused, f"{found[depth]:.3f}", f"{found['mrr@10']:.3f}")
        times = (f"{found[each]:.1f}" for each in ("p50_ms", "p95_ms"))
        table.add_row(way, *quality, *times, style="bold" if way == "fused" else None)
    yield table
    weights = ", ".join(f"{tier} {weight:g}" for tier, weight in report["weights"].items())
    sizes = (f"{report[what]:,} {what}" for what in ("documents", "links", "queries"))
    yield Text(plain(f"{report['collection']}: {', '.join(sizes)}; weights {weights}"), "dim")
    if report["shortened"]:
        yield Text(f"{report['shortened']} queries were longer than the API takes, and were shortened", "yellow")
    if report["degraded"]:
        said = f"{report['degraded']:,} of {report['searches']:,} answers lacked a tier: the figures mislead"
        yield Text(said, "red")
