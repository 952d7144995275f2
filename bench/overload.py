"""`python -m bench.overload`: twice as many searches as Braid can answer, sent whether or not it keeps up."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Annotated

import orjson
import typer
import uvloop

from bench import measure
from bench.corpus import make_corpus
from bench.server import Server, running_server

EXAMPLES = """Examples:

python -m bench.overload

python -m bench.overload --seconds 5 --factor 3
"""
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_ANSWERED, _REFUSED = 200, 503


@dataclass(frozen=True)
class Told:
    """One answer: its status, whether it missed a tier, and the time from sending to the last byte."""

    status: int
    degraded: bool
    seconds: float


class Wire:
    """Connections that are kept, over which bytes are sent: what a client costs here is not Braid's."""

    def __init__(self, server: Server, queries: list[str]) -> None:
        self._port = server.port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._requests = cycle([_request(server.key, query) for query in queries])

    async def search(self) -> Told:
        began = time.perf_counter()
        reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(next(self._requests))
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        body = await reader.readexactly(length)
        self._idle.append((reader, writer))
        return Told(int(head.split(b" ", 2)[1]), b'"degraded":true' in body, time.perf_counter() - began)

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()


def _request(key: str, query: str) -> bytes:
    body = orjson.dumps({"query": query, "limit": 10})
    head = (
        f"POST /v1/search HTTP/1.1\r\nHost: braid\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
    )
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@app.command(epilog=EXAMPLES)
def main(
    seconds: Annotated[float, typer.Option(min=1, help="length of each part")] = 10,
    factor: Annotated[float, typer.Option(min=1, help="how many times the peak to send")] = 2,
    documents: Annotated[int, typer.Option(min=100, help="documents to search")] = 2000,
) -> None:
    """Find the most searches a second that a Braid of its own answers, then send it twice as many."""
    text = make_corpus(documents, seed=1, generated=True)
    with running_server(rate_limit_key="0", rate_limit_tenant="0") as server:
        measure.write(server, text.documents, lambda _: None)
        queries = list(islice(text.queries(), 500))
        uvloop.run(_run(server, queries, seconds, factor))


async def _run(server: Server, queries: list[str], seconds: float, factor: float) -> None:
    wire = Wire(server, queries)
    await closed_loop(wire, 8, 2)
    peak = max([_rate(await closed_loop(wire, clients, seconds / 2), seconds / 2) for clients in (8, 16, 32)])
    print(f"peak: {peak:,.0f} searches a second (the best of 8, 16 and 32 clients that wait for their answers)")
    told, took = await open_loop(wire, peak * factor, seconds)
    wire.close()
    good = sorted(each.seconds for each in told if each.status == _ANSWERED and not each.degraded)
    refused = sorted(each.seconds for each in told if each.status == _REFUSED)
    others = len(told) - len(good) - len(refused)
    goodput = len(good) / took
    print(f"sent: {len(told) / seconds:,.0f} a second; {others} neither whole nor refused")
    print(f"goodput: {goodput:,.0f} a second, {goodput / peak:.0%} of the peak (goal: at least 90%)")
    print(f"whole answers: p50 {_ms(good, 0.5)}, p99 {_ms(good, 0.99)}")
    print(f"refusals: {len(refused):,}, p50 {_ms(refused, 0.5)}, p99 {_ms(refused, 0.99)} (goal: within 50 ms)")


def _rate(told: list[Told], seconds: float) -> float:
    return sum(each.status == _ANSWERED and not each.degraded for each in told) / seconds


def _ms(ordered: list[float], part: float) -> str:
    return f"{ordered[min(len(ordered) - 1, int(len(ordered) * part))] * 1000:.0f} ms" if ordered else "none"


async def closed_loop(wire: Wire, clients: int, seconds: float) -> list[Told]:
    """Clients who each ask again as soon as they are answered."""
    until = time.monotonic() + seconds

    async def ask() -> list[Told]:
        told = []
        while time.monotonic() < until:
            told.append(await wire.search())
        return told

    return [each for some in await asyncio.gather(*(ask() for _ in range(clients))) for each in some]


async def open_loop(wire: Wire, rate: float, seconds: float) -> tuple[list[Told], float]:
    """So many a second, by the clock: who is late to send one sends the next all the sooner."""
    began = time.monotonic()
    calls: list[asyncio.Task[Told]] = []
    while (passed := time.monotonic() - began) < seconds:
        calls += [asyncio.create_task(wire.search()) for _ in range(int(passed * rate) - len(calls))]
        await asyncio.sleep(0.002)
    told = await asyncio.gather(*calls)
    return list(told), time.monotonic() - began


if __name__ == "__main__":
    app(prog_name="python -m bench.overload")
