"""`python -m bench` on a small corpus: it runs from start to end and every figure is there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def printed(results: Path) -> str:
    small = ["--generated", "--documents", "200", "--searches", "10", "--results", results]
    command = [sys.executable, "-m", "bench", *small]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_figure_stands_in_one_table_with_its_goal(printed: str) -> None:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines() if line.startswith("|")]
    figures = {row[0]: row for row in rows[2:]}
    for tier in ("keyword", "vector", "graph"):
        assert "p50" in figures[f"{tier} alone, over HTTP"][1]
        assert "p95" in figures[f"{tier} alone, the tier itself"][1]
    assert "p95" in figures["fused, over HTTP, one client"][1]
    assert figures["overhead over the slowest tier, in the service"][3] in ("met", "not met")
    assert figures["documents a second, visible in all tiers"][2] == ">= 1,500"
    assert float(figures["fused searches a second, 8 clients"][1].replace(",", "")) > 0
    assert figures["answers without a tier that was late, 1 and 8 clients"][1].endswith(" of 40")


def test_the_figures_are_kept_as_json(printed: str, results: Path) -> None:
    [path] = results.glob("speed-*.json")
    assert str(path) in printed
    kept = json.loads(path.read_text())
    assert {kind: len(times) for kind, times in kept["searches"].items()} == dict.fromkeys(
        ("keyword", "vector", "graph", "fused"), 10
    )
    for search in kept["searches"]["fused"]:
        assert search["http_ms"] > search["took_ms"] > max(search["tiers"].values()) > 0
        assert set(search["tiers"]) == {"keyword", "vector", "graph"}


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_the_memory_of_the_service_and_of_each_engine_is_told_apart(printed: str, results: Path) -> None:
    [path] = results.glob("speed-*.json")
    memory = json.loads(path.read_text())["memory_mb"]
    assert set(memory) == {"service (with Qdrant)", "PostgreSQL", "FalkorDB"}
    assert all(megabytes > 5 for megabytes in memory.values())
