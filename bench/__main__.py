"""`python -m bench`, or `make bench ARGS="..."`: measures a Braid of its own, speed or quality, in one table."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import measure, quality, report
from bench.corpus import DATASETS, Corpus, make_corpus
from bench.fusing import fusing_ms, shaping_ms
from bench.server import BenchError, Server, running_server
from bench.walls import walls
from service.errors import BraidError

WARM_UP = 50
PATIENT = {"search_timeout_ms": "5000"}  # a busy machine is to be measured too, not refused
_COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
EXAMPLES = """Examples:

make bench

make bench ARGS="--documents 2000 --searches 100"

python -m bench --generated --clients 16

make bench ARGS=quality
"""
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
err = Console(stderr=True)


@app.callback(invoke_without_command=True, epilog=EXAMPLES)
def main(  # noqa: PLR0913, PLR0917 - a command's arguments are its options
    context: typer.Context,
    documents: Annotated[int, typer.Option(min=100, help="documents to write")] = 10_000,
    searches: Annotated[int, typer.Option(min=10, help="searches of each kind, by one client")] = 300,
    clients: Annotated[int, typer.Option(min=1, max=256, help="clients that search at once")] = 8,
    seed: Annotated[int, typer.Option(help="for everything that is drawn")] = 1,
    generated: Annotated[
        bool, typer.Option("--generated", help="generated text even where there is real text")
    ] = False,
    results: Annotated[Path, typer.Option(file_okay=False, help="where the JSON file goes")] = report.RESULTS,
) -> None:
    """Start a Braid on embedded engines and empty data, write documents, search them, and print one table.

    Goals stand beside the figures; nothing fails for missing one. All figures are kept as JSON.
    """
    if context.invoked_subcommand is not None:
        return
    asked = Asked(searches, clients, os.getloadavg()[0])
    try:
        corpus = make_corpus(documents, seed=seed, generated=generated)
        with Progress(*_COLUMNS, console=err, transient=True) as progress, running_server(**PATIENT) as server:
            run = _measure(server, corpus, asked, progress)
    except (BenchError, BraidError) as error:
        raise _failed(error) from None
    rows = report.lines(run)
    print(f"\n{run.title}\n\n{report.markdown(rows)}\n")
    print(f"All figures: {report.save(run, rows, results)}")


@app.command("quality", epilog="Example: python -m bench quality scifact cacm --queries 100")
def measure_quality(
    collections: Annotated[
        list[str] | None, typer.Argument(help=f"of {', '.join(quality.COLLECTIONS)}; default: all")
    ] = None,
    queries: Annotated[int | None, typer.Option(min=1, help="only so many queries of each, evenly spread")] = None,
    datasets: Annotated[Path, typer.Option(file_okay=False, help="where the collections are")] = DATASETS,
    results: Annotated[Path, typer.Option(file_okay=False, help="where the JSON file goes")] = report.RESULTS,
) -> None:
    """Measure keyword search against the bm25s library, and the fused ranking against its best tier."""
    try:
        with Progress(*_COLUMNS, console=err, transient=True) as progress:
            found = quality.measure(collections or quality.COLLECTIONS, datasets, queries, partial(_bar, progress))
    except (BenchError, BraidError) as error:
        raise _failed(error) from None
    print(f"\n{quality.table(found)}\n")
    for name in sorted(set(collections or quality.COLLECTIONS) - {each.name for each in found}):
        print(f"Not measured: {name}, as there is no {datasets / name}")
    kept = report.keep(results, "quality", {each.name: each.body() for each in found})
    print(f"All figures: {kept}")


def _failed(error: Exception) -> typer.Exit:
    err.print(f"bench: {error}", style="red", markup=False, highlight=False)
    return typer.Exit(1)


@dataclass(frozen=True, slots=True)
class Asked:
    """How much to measure; and how busy the machine was before."""

    searches: int
    clients: int
    load: float


def _bar(progress: Progress, label: str, total: int) -> measure.Step:
    task = progress.add_task(label, total=total)
    return lambda count: progress.advance(task, count)


def _measure(server: Server, corpus: Corpus, asked: Asked, progress: Progress) -> report.Run:
    bar = partial(_bar, progress)
    many = asked.searches * 4
    written = measure.write(server, corpus.documents, bar("Writing", len(corpus.documents)))
    measure.warm_up(server, corpus, WARM_UP)
    alone = measure.latencies(server, corpus, asked.searches, bar("Searching, one client", asked.searches))
    together = measure.throughput(server, corpus, many, asked.clients, bar(f"Searching, {asked.clients} clients", many))
    memory = server.memory()
    cost = walls(server, corpus, asked.searches * 2, bar("Searching, row security on and off", asked.searches * 2))
    return report.Run(corpus.source, written, alone, together, memory, fusing_ms(), shaping_ms(), cost, asked.load)


if __name__ == "__main__":
    app(prog_name="python -m bench")
