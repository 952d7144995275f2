"""`python -m bench.contract`: does Braid keep what its OpenAPI document says? Asked by Schemathesis, in every way.

All of its checks but one: `object_level_authorization` wants two identities that make the same objects, which
tests/isolation does more thoroughly. What counts as a failure, and what is excused, stands in `contract_hooks`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bench.server import TENANT, Server, running_server

_ROOT = Path(__file__).parents[1]
# So many wrong keys and calls a second are the test, not an attack.
UNLIMITED = {"rate_limit_key": "0", "rate_limit_tenant": "0", "rate_limit_failures": "0"}
_STATEFUL = 60  # chains of calls at least; few of them go far
_CONFIG = """
hooks = "bench.contract_hooks"
request-timeout = 60
continue-on-failure = true

[checks]
object_level_authorization.enabled = false

# The document has links of its own; what can be inferred besides takes a tenant's id for its name.
[phases.stateful]
inference.algorithms = []
generation.max-examples = {chains}

[generation]
database = "none"
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What Schemathesis found, and how often each operation answered what."""

    kept: bool
    report: str
    answers: Mapping[str, Mapping[int, int]]


def check(server: Server, cases: int, seed: int) -> Outcome:
    """Every phase: the examples, the edges of each schema, random data, and chains of calls along the links."""
    with tempfile.TemporaryDirectory(prefix="braid-contract-") as folder:
        config, answers = Path(folder) / "schemathesis.toml", Path(folder) / "answers.json"
        config.write_text(_CONFIG.format(chains=max(cases, _STATEFUL)), encoding="utf-8")
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", config, "--no-color", "run"]
        command += [f"http://127.0.0.1:{server.port}/openapi.json", "--max-examples", str(cases), "--seed", str(seed)]
        environment = os.environ | {
            "PYTHONPATH": str(_ROOT),
            "CONTRACT_KEY": server.key,
            "CONTRACT_ADMIN_KEY": server.admin_key,
            "CONTRACT_TENANT": TENANT,
            "CONTRACT_ANSWERS": str(answers),
        }
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        told = json.loads(answers.read_text(encoding="utf-8")) if answers.exists() else {}
    counts = {operation: {int(status): n for status, n in statuses.items()} for operation, statuses in told.items()}
    return Outcome(done.returncode == 0, done.stdout + done.stderr, counts)


def main(
    cases: Annotated[int, typer.Option(min=1, help="random cases of each operation")] = 1000,
    seed: Annotated[int, typer.Option(help="for everything that is drawn")] = 1,
) -> None:
    """Start a Braid on embedded engines and empty data, and hold it to its OpenAPI document."""
    with running_server(**UNLIMITED) as server:
        outcome = check(server, cases, seed)
    print(outcome.report)
    for operation, statuses in sorted(outcome.answers.items()):
        told = ", ".join(f"{status}: {count}" for status, count in sorted(statuses.items()))
        print(f"{sum(statuses.values()):7,}  {operation}  ({told})")
    if not outcome.kept:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
