"""The proxy itself: each of its faults, seen by a plain client of a plain server."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from tests.faults.proxy import BLACK_HOLE, REFUSE, WELL, Fault, Proxy, proxied

WORD = b"0123456789" * 10


async def repeat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def echoing() -> AsyncIterator[Proxy]:
    server = await asyncio.start_server(repeat, "127.0.0.1", 0)
    async with proxied(server.sockets[0].getsockname()[:2]) as proxy:
        yield proxy
    server.close()


class Link:
    """One connection through the proxy."""

    made: ClassVar[list[Link]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.made.append(self)

    @classmethod
    async def to(cls, proxy: Proxy) -> Link:
        return cls(*await asyncio.open_connection("127.0.0.1", proxy.port))

    async def echo(self, seconds: float = 5) -> bytes:
        self.writer.write(WORD)
        async with asyncio.timeout(seconds):
            return await self.reader.readexactly(len(WORD))


@pytest.fixture(autouse=True)
async def no_link_is_left() -> AsyncIterator[None]:
    yield
    while Link.made:
        link = Link.made.pop()
        link.writer.close()
        with contextlib.suppress(ConnectionError):
            await link.writer.wait_closed()


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with echoing() as started:
        yield started


async def test_what_is_well_passes_both_ways(proxy: Proxy) -> None:
    link = await Link.to(proxy)
    assert await link.echo() == WORD
    assert await link.echo() == WORD
    assert (proxy.accepted, proxy.connections) == (1, 1)


async def test_it_reaches_unix_sockets(tmp_path: Path) -> None:
    server = await asyncio.start_unix_server(repeat, str(tmp_path / "s"))
    async with proxied(tmp_path / "s") as proxy:
        assert await (await Link.to(proxy)).echo() == WORD
    server.close()


async def test_refusing_throws_out_who_is_there_and_lets_nobody_in(proxy: Proxy) -> None:
    link = await Link.to(proxy)
    await link.echo()
    async with proxy.broken(REFUSE):
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await link.echo()
        with pytest.raises(ConnectionRefusedError):
            await Link.to(proxy)
    assert await (await Link.to(proxy)).echo() == WORD


async def test_a_black_hole_takes_connections_and_never_answers(proxy: Proxy) -> None:
    old = await Link.to(proxy)
    await old.echo()
    await proxy.become(BLACK_HOLE)
    new = await Link.to(proxy)
    for link in (old, new):
        with pytest.raises(TimeoutError):
            await link.echo(0.05)
    await proxy.become(WELL)
    async with asyncio.timeout(5):
        assert await old.reader.readexactly(len(WORD)) == WORD, "what was held back comes in the end"


async def test_latency_delays_every_answer(proxy: Proxy) -> None:
    link = await Link.to(proxy)
    await proxy.become(Fault("slow", latency_s=0.1))
    began = time.perf_counter()
    assert await link.echo() == WORD
    assert time.perf_counter() - began >= 0.1


async def test_jitter_spreads_the_delays() -> None:
    proxy = Proxy(("127.0.0.1", 1), seed=3)
    drawn = {round(proxy._random.gauss(0.05, 0.04), 4) for _ in range(20)}
    assert len(drawn) == 20


async def test_bandwidth_lets_through_so_much_a_second(proxy: Proxy) -> None:
    link = await Link.to(proxy)
    await proxy.become(Fault("narrow", bytes_per_s=400))
    began = time.perf_counter()
    assert await link.echo() == WORD
    assert time.perf_counter() - began >= 0.2


async def test_a_reset_comes_in_the_middle_of_an_answer(proxy: Proxy) -> None:
    link = await Link.to(proxy)
    await proxy.become(Fault("reset", cut="reset"))
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await link.echo()


async def test_a_truncated_answer_ends_in_its_middle_as_if_that_were_all(proxy: Proxy) -> None:
    link = await Link.to(proxy)
    await proxy.become(Fault("truncate", cut="end"))
    with pytest.raises(asyncio.IncompleteReadError) as ended:
        await link.echo()
    assert ended.value.partial == WORD[: len(WORD) // 2]


async def test_corruption_changes_bytes_and_no_lengths(proxy: Proxy) -> None:
    link = await Link.to(proxy)
    await proxy.become(Fault("corrupt", corrupt=True))
    answer = await link.echo()
    assert len(answer) == len(WORD)
    assert sum(a != b for a, b in zip(answer, WORD, strict=True)) == pytest.approx(len(WORD) / 7, abs=1)


async def test_flapping_comes_and_goes(proxy: Proxy) -> None:
    async with proxy.broken(Fault("flap", flap_s=0.05)):
        seen = set()
        async with asyncio.timeout(5):
            while seen != {True, False}:
                try:
                    seen.add(await (await Link.to(proxy)).echo() == WORD)
                except (ConnectionError, asyncio.IncompleteReadError):
                    seen.add(False)
                await asyncio.sleep(0.01)
    assert await (await Link.to(proxy)).echo() == WORD


async def test_nothing_is_left_when_it_stops() -> None:
    async with echoing() as proxy:
        link = await Link.to(proxy)
        await link.echo()
        await proxy.become(BLACK_HOLE)
    assert proxy.connections == 0
    with pytest.raises(ConnectionError):
        await Link.to(proxy)
