"""`braid eval` and `python -m bench quality` on a collection small enough to work out by hand."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import log2
from pathlib import Path

import pytest

from tests.conftest import Running

ROOT = Path(__file__).parents[2]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("BRAID_")} | {"COLUMNS": "120"}
TEXTS = {
    "kettle": ("Copper kettle", "Boils a litre in four minutes."),
    "harbour": ("Zeppelin harbour", "Where airships are moored."),
    "mast": ("Mooring mast", "A tower of steel girders."),
    "garden": ("Walled garden", "Pears and quinces along the bricks."),
    "letters": ("Box of letters", "Postmarked between the wars."),
}
# Both queries share words with one document each. The first finds all there is to find by words; the second finds one
# of two that are right: nDCG 1 and 1 / (1 + 1/log2(3)), recall 1 and 1/2, and both have a right one at the top.
KEYWORD = {"ndcg@10": (1 + 1 / (1 + 1 / log2(3))) / 2, "recall@100": 0.75, "mrr@10": 1.0}
WAYS = {f"{tier} alone" for tier in ("keyword", "vector", "graph")}
WAYS |= {"fused"} | {f"fused without {tier}" for tier in ("keyword", "vector", "graph")}


def write(folder: Path) -> Path:
    corpus = [{"_id": id, "title": title, "text": text} for id, (title, text) in TEXTS.items()]
    queries = [{"_id": "q1", "text": "copper kettle"}, {"_id": "q2", "text": "zeppelin harbour"}]
    edges = [{"source": "harbour", "target": "mast", "type": "has", "strength": 0.9}]
    (folder / "qrels").mkdir(parents=True)
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tkettle\t1\nq2\tharbour\t1\nq2\tmast\t1\n")
    for name, rows in {"corpus": corpus, "queries": queries, "edges": edges}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    return write(tmp_path / "tiny")


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Where temporary files go; the path is short, as a socket lies below it."""
    with tempfile.TemporaryDirectory(prefix="be-", dir="/tmp") as folder:
        yield Path(folder)


@dataclass(frozen=True)
class Done:
    """A command's end."""

    returncode: int
    stdout: str
    stderr: str


def python(scratch: Path, *arguments: object, **environment: str) -> Done:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env=CLEAN | {"TMPDIR": str(scratch)} | environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def evaluate(scratch: Path, *arguments: object, **environment: str) -> Done:
    return python(scratch, "-m", "service.cli", "eval", *arguments, **environment)


def processes_below(folder: Path) -> list[str]:
    listed = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if str(folder) in line]


def test_a_throw_away_braid_is_measured_and_leaves_nothing_behind(collection: Path, scratch: Path) -> None:
    # An address in the environment is of an engine that holds somebody's data: it must not be touched.
    done = evaluate(scratch, collection, BRAID_POSTGRES_URL="postgresql://nobody@127.0.0.1:1/none")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["nDCG@10", "to", "fused", "Recall@100", "MRR@10", "p50", "ms", "p95", "ms"]
    rows = {line[:22].strip(): line[22:].split() for line in lines[1:8]}
    assert set(rows) == WAYS
    assert [rows["keyword alone"][at] for at in (0, 2, 3)] == ["0.807", "0.750", "1.000"]
    assert len(rows["fused"]) == 5, "it is not compared with itself"
    assert lines[8].startswith("tiny: 5 documents, 1 links, 2 queries; weights keyword 0.65, vector 0.25, graph 0.1")
    assert len(lines) == 9
    assert list(scratch.iterdir()) == []
    assert processes_below(scratch) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_half_way_it_leaves_nothing_behind(collection: Path, scratch: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "service.cli", "eval", str(collection)],
        cwd=ROOT,
        env=CLEAN | {"TMPDIR": str(scratch)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    began = time.monotonic()
    while not any("postgres" in line for line in processes_below(scratch)):
        assert process.poll() is None
        assert time.monotonic() - began < 30
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(30) != 0
    assert list(scratch.iterdir()) == []
    assert processes_below(scratch) == []


async def test_a_running_braid_is_measured_and_left_empty(braid: Running, collection: Path, scratch: Path) -> None:
    key = await braid.key()
    done = await asyncio.to_thread(evaluate, scratch, collection, "--url", braid.url, "--json", BRAID_API_KEY=key)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert set(report["ways"]) == WAYS
    keyword = report["ways"]["keyword alone"]
    assert {name: keyword[name] for name in KEYWORD} == pytest.approx(KEYWORD)
    assert 0 < keyword["p50_ms"] <= keyword["p95_ms"]
    # The mast shares no word with its query; a link leads there from the harbour, which the query names.
    assert report["ways"]["graph alone"]["recall@100"] == 1
    assert report["ways"]["fused"]["recall@100"] == 1
    assert (report["documents"], report["links"], report["queries"]) == (5, 1, 2)
    assert (report["degraded"], report["searches"], report["shortened"]) == (0, 14, 0)
    assert (await braid.client(key).get("/v1/namespaces")).json() == {"namespaces": []}


async def test_a_tenant_that_has_documents_is_refused(braid: Running, collection: Path, scratch: Path) -> None:
    key = await braid.key()
    client = braid.client(key)
    await client.put("/v1/documents/kettle", json={"content": "somebody's own"})
    done = await asyncio.to_thread(evaluate, scratch, collection, "--url", braid.url, "--key", key)
    assert done.returncode == 1
    assert done.stderr == (
        "braid: this key's tenant has 1 documents; take an empty one: braid key create --tenant throw-away\n"
    )
    assert (await client.get("/v1/documents/kettle")).json()["content"] == "somebody's own"


async def test_a_refused_document_is_named_and_the_others_are_removed(
    braid: Running, collection: Path, scratch: Path
) -> None:
    with (collection / "corpus.jsonl").open("a") as corpus:
        corpus.write(json.dumps({"_id": "long", "title": "x" * 2000, "text": ""}) + "\n")
    key = await braid.key()
    done = await asyncio.to_thread(evaluate, scratch, collection, "--url", braid.url, "--key", key)
    assert done.returncode == 1
    assert done.stderr.startswith("braid: long was refused: title: ")
    assert (await braid.client(key).get("/v1/namespaces")).json() == {"namespaces": []}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--split", "dev"], "braid: cannot read {}/qrels/dev.tsv: No such file or directory"),
        (["--within", "room"], "braid: {}/queries.jsonl, line 1: `metadata` has no text called 'room'"),
        (["--url", "http://127.0.0.1:1"], "braid: no API key: pass --key, of a tenant without documents"),
        (["--url", "http://127.0.0.1:1", "--key", "k"], "braid: nothing answers there"),
    ],
)
def test_what_is_wrong_is_one_line(collection: Path, scratch: Path, options: list[str], complaint: str) -> None:
    done = evaluate(scratch, collection, *options)
    assert done.returncode == 1
    assert done.stderr.startswith(complaint.format(collection))
    assert done.stderr.count("\n") == 1


def test_the_benchmark_puts_bm25s_beside_the_keyword_tier(tmp_path: Path, scratch: Path) -> None:
    write(tmp_path / "datasets/scifact")
    asked = ["--datasets", tmp_path / "datasets", "--results", tmp_path / "results"]
    done = python(scratch, "-m", "bench", "quality", "scifact", "cacm", *asked)
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if "|" in line]
    [named] = [dict(zip(rows[0][:6], row, strict=False)) for row in rows if row[0] == "scifact"]
    assert (named["documents"], named["queries"]) == ("5", "2")
    assert named["bm25s"] == named["bm25s, k1 1.2"] == named["keyword"] == "80.7"
    assert rows[2][6] == "met"
    assert rows[-1][6] == "1 of 1"
    assert f"Not measured: cacm, as there is no {tmp_path / 'datasets/cacm'}" in done.stdout
    [kept] = (tmp_path / "results").glob("quality-*.json")
    assert json.loads(kept.read_text())["scifact"]["ways"]["keyword alone"]["mrr@10"] == 1


def test_the_benchmark_says_where_it_looked_for_collections(tmp_path: Path, scratch: Path) -> None:
    done = python(scratch, "-m", "bench", "quality", "cacm", "--datasets", tmp_path)
    assert done.returncode == 1
    assert "".join(done.stderr.splitlines()) == f"bench: none of cacm is in {tmp_path}"
