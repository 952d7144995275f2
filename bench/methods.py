"""nDCG@10 of every fusion method with every normaliser, on the collections beside the checkout.

    python -m bench.methods cranfield cacm             with the bundled embedder
    python -m bench.methods cranfield --minilm         with the vectors that came with the collection

Each tier is asked once for every query; the ways to fuse are then compared with the service's own functions.
"""

from __future__ import annotations

import sys

from bench.corpus import DATASETS
from bench.quality import COLLECTIONS, WITHIN
from bench.report import grid
from service.evaluation.candidates import Way, mean_ndcg
from service.evaluation.collection import read_collection
from service.evaluation.tune import asked, every_option

QUERIES = 250
VECTORS = "vectors/all-MiniLM-L6-v2.npz"


def compared(name: str, minilm: bool) -> dict[str, float]:
    vectors = DATASETS / name / VECTORS if minilm else None
    read = read_collection(DATASETS / name, within=WITHIN[name], queries=QUERIES, vectors=vectors)
    found, weights = asked(read, lambda _label, _total: lambda _count: None, vectors)
    ways = [Way(options, weights) for options in every_option()]
    return {way.name: mean_ndcg(way, found, read.judgements) for way in ways}


def main() -> None:
    names = [name for name in sys.argv[1:] if not name.startswith("--")] or list(COLLECTIONS)
    columns = {name: compared(name, "--minilm" in sys.argv) for name in names}
    ways = next(iter(columns.values()))
    print(grid([["", *names], *([way, *(f"{100 * each[way]:.1f}" for each in columns.values())] for way in ways)]))


if __name__ == "__main__":
    main()
