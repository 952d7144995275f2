"""`python -m bench.chaos`: every fault on the wire against every tier, and what it cost."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console

from tests.faults.proxy import FAULTS, FLAP, LATENCY, Fault
from tests.faults.rig import Rig, Seen, rigged

EXAMPLES = """Examples:

python -m bench.chaos

python -m bench.chaos --seconds 2 --tier graph
"""
TIERS = ("vector", "graph", "keyword")
DEADLINE_S = 0.8  # a tier's share of a second
HEADER = (
    "tier      fault        requests  errors  wrong  p50 x  p99 before           p99 x after  healed s  goals\n"
    "--------  -----------  --------  ------  -----  -----  -------------------  -----------  --------  -----"
)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
err = Console(stderr=True)


@dataclass(frozen=True)
class Cell:
    """One fault of one tier: answers while all was well, from its start, and once the breaker had opened."""

    tier: str
    fault: Fault
    well: list[Seen]
    before: list[Seen]
    after: list[Seen]
    wrong: list[str]
    healed_s: float

    @property
    def errors(self) -> int:
        """A 503 while PostgreSQL cannot be reached is what it should be; everything else that is no 200 is not."""
        fine = {200, 503} if self.tier == "keyword" else {200}
        return sum(seen.status not in fine for seen in self.before + self.after)

    @property
    def late_s(self) -> float:
        return quantile(self.before, 0.99) - quantile(self.well, 0.99)

    @property
    def ratio_after(self) -> float | None:
        """Only where the breaker opens and stays open: PostgreSQL has none, and what comes and goes closes it again."""
        if self.tier == "keyword" or self.fault in (LATENCY, FLAP):
            return None
        return quantile(self.after, 0.99) / quantile(self.well, 0.99)

    def met(self) -> bool:
        late = self.late_s <= (1.0 if self.tier == "keyword" else DEADLINE_S) + 0.05
        return not self.errors and not self.wrong and late and (self.ratio_after or 0) <= 1.2

    def line(self) -> str:
        p50 = quantile(self.before + self.after, 0.5) / quantile(self.well, 0.5)
        after = "" if self.ratio_after is None else f"{self.ratio_after:.2f}"
        return (
            f"{self.tier:<8}  {self.fault.name:<11}  {len(self.before + self.after):>8}  {self.errors:>6}  "
            f"{len(self.wrong):>5}  {p50:>5.2f}  healthy {self.late_s * 1000:>+8.0f} ms  {after:>11}  "
            f"{self.healed_s:>8.2f}  {'met' if self.met() else 'NOT MET'}"
        )


def quantile(seen: list[Seen], part: float) -> float:
    ordered = sorted(each.seconds for each in seen)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


@app.command(epilog=EXAMPLES)
def main(
    seconds: Annotated[float, typer.Option(min=0.2, help="length of each of a fault's three parts")] = 3,
    clients: Annotated[int, typer.Option(min=1, help="clients that ask at once")] = 8,
    tier: Annotated[list[str] | None, typer.Option(help=f"of {', '.join(TIERS)}; default: all")] = None,
) -> None:
    """Break every engine in every way under load, and print what the answers looked like."""
    logging.disable(logging.WARNING)  # what breaks is meant to
    cells = uvloop.run(_run(seconds, clients, tier or TIERS))
    missed = [cell for cell in cells if not cell.met()]
    for cell in missed:
        for wrong in cell.wrong[:3]:
            print(f"{cell.tier}, {cell.fault.name}: {wrong}")
    print(
        f"\n{sum(len(c.before + c.after) for c in cells):,} requests, {sum(c.errors for c in cells)} errors,", end=" "
    )
    print(f"{sum(len(c.wrong) for c in cells)} wrong flags or rankings; {len(missed)} of {len(cells)} missed a goal")
    raise typer.Exit(any(cell.errors or cell.wrong for cell in cells))


async def _run(seconds: float, clients: int, tiers: tuple[str, ...] | list[str]) -> list[Cell]:
    cells = []
    with tempfile.TemporaryDirectory(prefix="braid-chaos-", dir="/tmp") as folder:
        async with rigged(Path(folder), rate_limit_key=0, rate_limit_tenant=0) as rig:
            print(HEADER, flush=True)
            for tier in tiers:
                for fault in FAULTS:
                    cells.append(await _break(rig, tier, fault, seconds, clients))
                    print(cells[-1].line(), flush=True)
    return cells


async def _break(rig: Rig, tier: str, fault: Fault, seconds: float, clients: int) -> Cell:
    well = await rig.load(clients, seconds)
    async with rig.proxies[tier].broken(fault):
        before = await rig.load(clients, seconds)
        after = await rig.load(clients, seconds)
    healed = await rig.healed(10)
    await asyncio.sleep(0.2)
    wrong = [why for seen in before + after if (why := rig.wrong(seen, tier))]
    return Cell(tier, fault, well, before, after, wrong, healed)


if __name__ == "__main__":
    app(prog_name="python -m bench.chaos")
