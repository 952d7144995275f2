"""What row security costs: the same searches with and without it, by turns, on the same data."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import asyncpg

from bench.client import Client
from bench.corpus import Corpus
from bench.measure import Step
from bench.server import Server

BLOCK = 20
SETTLE = 5
# FORCE stays with a table whose row security is switched off, and so tells which tables have it.
_WALLED = """
SELECT quote_ident(relname) FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relforcerowsecurity
"""


@dataclass(frozen=True, slots=True)
class Walls:
    """Times of fused searches over HTTP, in ms, query by query."""

    on: Sequence[float]
    off: Sequence[float]


def walls(server: Server, corpus: Corpus, count: int, step: Step) -> Walls:
    """Each block of queries is asked both ways, now one way first and now the other: noise hits both alike."""
    queries = [f"walled {query}" for query in islice(corpus.queries(), count)]
    taken: dict[bool, list[float]] = {True: [], False: []}
    with Client(server) as client:
        try:
            for start in range(0, count, BLOCK):
                block = queries[start : start + BLOCK]
                first = bool(start // BLOCK % 2)
                for on in (first, not first):
                    asyncio.run(_switch(server.owner_url, on=on))
                    for query in block[:SETTLE]:  # every connection plans its statements anew
                        client.search(f"settled {query}")
                    taken[on] += [client.search(query).http_ms for query in block]
                step(len(block))
        finally:
            asyncio.run(_switch(server.owner_url, on=True))
    return Walls(taken[True], taken[False])


async def _switch(owner_url: str, *, on: bool) -> None:
    connection = await asyncpg.connect(owner_url)
    try:
        for (table,) in await connection.fetch(_WALLED):
            await connection.execute(f"ALTER TABLE {table} {'ENABLE' if on else 'DISABLE'} ROW LEVEL SECURITY")
    finally:
        await connection.close()
