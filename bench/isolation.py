"""`python -m bench.isolation`: the long run of tests/isolation, against a Braid of its own in this process."""

from __future__ import annotations

import logging
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.isolation.checker import Checker, Report
from tests.isolation.probes import probe
from tests.isolation.world import created

EXAMPLES = """Examples:

python -m bench.isolation

python -m bench.isolation --operations 5000 --tenants 5 --seed 7
"""
_COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
_SHOWN = 20
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
err = Console(stderr=True)


@app.command(epilog=EXAMPLES)
def main(
    operations: Annotated[int, typer.Option(min=1, help="calls to make")] = 100_000,
    tenants: Annotated[int, typer.Option(min=2, max=90, help="tenants to make")] = 20,
    minutes: Annotated[float, typer.Option(min=0.1, help="stop calling after so long")] = 120,
    seed: Annotated[int, typer.Option(help="for everything that is drawn")] = 1,
) -> None:
    """Make random calls of every endpoint with every kind of key, and look for what a caller must not see."""
    logging.getLogger("httpx").setLevel(logging.WARNING)  # the embedder's library turns on what logs every call
    started = time.perf_counter()
    report = uvloop.run(_run(operations, tenants, minutes, seed))
    seconds = time.perf_counter() - started
    print(f"{report.calls:,} calls by {tenants} tenants in {seconds:,.0f} s: {len(report.leaks)} leaks")
    print("answers:", ", ".join(f"{count:,} x {status}" for status, count in sorted(report.statuses.items())))
    print("calls:", ", ".join(f"{count:,} {name}" for name, count in report.operations.most_common()))
    print(f"canaries rightly shown: {report.own.total():,}")
    for leak in report.leaks[:_SHOWN]:
        print("LEAK:", leak)
    raise typer.Exit(bool(report.leaks))


async def _run(operations: int, tenants: int, minutes: float, seed: int) -> Report:
    with tempfile.TemporaryDirectory(prefix="braid-isolation-") as folder:
        err.print(f"Making {tenants} tenants")
        async with created(Path(folder), tenants, seed) as world:
            with Progress(*_COLUMNS, console=err, transient=True) as progress:
                task = progress.add_task("Calling", total=operations)
                checker = Checker(world, seed, progress=lambda: progress.advance(task))
                report = await checker.run(operations, minutes * 60)
            report.leaks += await probe(world)
    return report


if __name__ == "__main__":
    app(prog_name="python -m bench.isolation")
