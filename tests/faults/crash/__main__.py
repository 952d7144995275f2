"""`make crash N=1000`, or `python -m tests.faults.crash --kills 1000`: the long run, and its counts."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.faults.crash.check import Findings, check, converged
from tests.faults.crash.clients import Client
from tests.faults.crash.cluster import WEIGHTS, Cluster

CONVERGE_S = 30
ALL = tuple(WEIGHTS)


async def crash(
    folder: Path, kills: int, seed: int, *, sabotage: str = "none", among: tuple[str, ...] = ALL, clients: int = 4
) -> tuple[Findings, Counter[str], Cluster]:
    """Kills under load, lets it come to rest, and looks into every engine."""
    cluster, findings = Cluster(folder, seed, sabotage), Findings()
    try:
        await cluster.start()
        writing = [Client(number, cluster.url, cluster.key, seed) for number in range(clients)]
        tasks = [asyncio.create_task(client.run()) for client in writing]
        await asyncio.sleep(1)
        await cluster.keep_killing(kills, among)
        await cluster.up()
        for client in writing:
            client.stopped = True
        await asyncio.gather(*tasks)
        await asyncio.to_thread(cluster.last_blow, among)
        await cluster.up()
        findings.converged_s = await converged(cluster.addresses.postgres_url or "", CONVERGE_S)
        await asyncio.sleep(0.5)  # a sabotaged worker says that it is done before it is
        took = await asyncio.to_thread(cluster.stop_api)
        if took > 10:
            findings.note("the API", "late", f"stopped after {took:.1f} s")
        await check(cluster, writing, findings)
        log = (folder / "braid.log").read_text(errors="replace")
        for request in re.findall(r"ERROR service.api.middleware: request .*?(?=\n[A-Z]+ |\Z)", log, re.DOTALL):
            findings.note("the API", "unforeseen", request[-1500:])
    finally:
        await asyncio.to_thread(cluster.stop)
    return findings, sum((client.told for client in writing), Counter()), cluster


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sabotage", default="none")
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bc-", dir="/tmp") as folder:
        findings, told, cluster = asyncio.run(crash(Path(folder), asked.kills, asked.seed, sabotage=asked.sabotage))
    answered = sum(told.values()) - told["no answer"]
    print(f"{sum(cluster.kills.values())} kills in {time.monotonic() - began:.0f} s: {dict(cluster.kills)}")
    print(f"{answered} answers ({dict(told)}), {findings.documents} documents at the end")
    print(f"converged after {findings.converged_s:.1f} s")
    print(", ".join(f"{findings.total(kind)} {kind}" for kind in ("lost", "resurrected", "phantom", "stale")))
    for example in findings.examples:
        print(f"  {example}")
    return int(bool(findings.counts) or findings.converged_s > CONVERGE_S)


if __name__ == "__main__":
    sys.exit(main())
