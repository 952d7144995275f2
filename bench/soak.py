"""`python -m bench.soak`: searches for minutes while faults come and go, and whether anything piles up."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import statistics
import tempfile
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from tests.faults.proxy import FAULTS
from tests.faults.rig import Rig, rigged

EXAMPLES = """Examples:

python -m bench.soak --minutes 20

python -m bench.soak --minutes 1 --seed 7
"""
# What may grow by how much, from the second quarter of the run to its last: less is noise.
ALLOWED = {"memory_mb": 1.05, "files": 1.1, "tasks": 1.1, "connections": 1.1}
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Sample:
    """What the process holds at one moment, all engines being well."""

    minute: float
    answers: int
    wrong: int
    memory_mb: float
    files: int
    tasks: int
    connections: int

    def line(self) -> str:
        return "  ".join(
            f"{value:>11.1f}" if isinstance(value, float) else f"{value:>11}" for value in vars_of(self).values()
        )


def vars_of(sample: Sample) -> dict[str, float]:
    return {field.name: getattr(sample, field.name) for field in fields(sample)}


@app.command(epilog=EXAMPLES)
def main(
    minutes: Annotated[float, typer.Option(min=0.2, help="how long")] = 20,
    clients: Annotated[int, typer.Option(min=1, help="clients that ask at once")] = 4,
    every: Annotated[float, typer.Option(min=1, help="seconds between samples")] = 20,
    seed: Annotated[int, typer.Option(help="for the faults that are drawn")] = 1,
) -> None:
    """Search while engines break and heal, and print memory, files, tasks and connections as they go."""
    logging.disable(logging.WARNING)  # what breaks is meant to
    samples = uvloop.run(_run(minutes, clients, every, seed))
    flat = [_verdict(name, samples) for name in ALLOWED]
    print(f"{samples[-1].answers:,} answers, {samples[-1].wrong} of them wrong")
    raise typer.Exit(not all(flat) or bool(samples[-1].wrong))


def _verdict(name: str, samples: list[Sample]) -> bool:
    """The middle of the second quarter against that of the last: the first is for caches to fill."""
    quarter = max(1, len(samples) // 4)
    early = statistics.median(getattr(each, name) for each in samples[quarter : 2 * quarter] or samples)
    late = statistics.median(getattr(each, name) for each in samples[-quarter:])
    flat = bool(late <= early * ALLOWED[name] + 2)
    print(f"{name:<12} {early:>8.1f} -> {late:>8.1f}  {'flat' if flat else 'GROWS'}")
    return flat


async def _run(minutes: float, clients: int, every: float, seed: int) -> list[Sample]:
    samples: list[Sample] = []
    draw = random.Random(seed)
    until = time.monotonic() + minutes * 60
    answers = wrong = 0
    with tempfile.TemporaryDirectory(prefix="braid-soak-", dir="/tmp") as folder:
        async with rigged(Path(folder), rate_limit_key=0, rate_limit_tenant=0) as rig:
            began = time.monotonic()
            print("  ".join(f"{field.name:>11}" for field in fields(Sample)), flush=True)
            while time.monotonic() < until:
                next_sample = time.monotonic() + every
                while time.monotonic() < next_sample:
                    asked, bad = await _round(rig, draw, clients)
                    answers, wrong = answers + asked, wrong + bad
                samples.append(_sample(rig, (time.monotonic() - began) / 60, answers, wrong))
                print(samples[-1].line(), flush=True)
    return samples


async def _round(rig: Rig, draw: random.Random, clients: int) -> tuple[int, int]:
    """One fault of one tier, and a while in which all is well."""
    tier, fault = draw.choice(list(rig.proxies)), draw.choice(FAULTS)
    async with rig.proxies[tier].broken(fault):
        broken = await rig.load(clients, draw.uniform(0.5, 2))
    await rig.healed(15)
    well = await rig.load(clients, 0.5)
    await asyncio.sleep(1)  # idle: what was left alone has ended
    wrong = [why for seen in broken if (why := rig.wrong(seen, tier))]
    wrong += [why for seen in well if (why := rig.wrong(seen, "none"))]
    for why in wrong[:3]:
        print(f"{tier}, {fault.name}: {why}")
    return len(broken) + len(well), len(wrong)


def _sample(rig: Rig, minute: float, answers: int, wrong: int) -> Sample:
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20
    files = len(list(Path("/proc/self/fd").iterdir()))
    connections = sum(proxy.connections for proxy in rig.proxies.values())
    return Sample(minute, answers, wrong, resident, files, len(asyncio.all_tasks()), connections)


if __name__ == "__main__":
    app(prog_name="python -m bench.soak")
