"""A TCP proxy that breaks as told: between the service and an engine, where networks and servers really fail."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

Target = tuple[str, int] | Path  # a port, or a Unix socket
_CHUNK = 65_536
_LINGER_NOT = struct.pack("ii", 1, 0)  # closing then sends a reset, not an end


@dataclass(frozen=True)
class Fault:
    """What happens to connections: to those that are open, and to new ones. Everything in it may hold at once."""

    name: str
    refuse: bool = False  # nobody listens, and who was connected is thrown out
    swallow: bool = False  # connections are taken, and nothing ever comes back
    latency_s: float = 0.0  # every part of an answer comes so much later,
    jitter_s: float = 0.0  # give or take so much
    bytes_per_s: int = 0  # answers come no faster than this; 0 for as fast as they can
    cut: str = ""  # in the middle of an answer: "reset" it, or "end" it as if that were all
    corrupt: bool = False  # every seventh byte of an answer is another
    flap_s: float = 0.0  # refuses for so long, then is well for so long, and so on


WELL = Fault("well")
REFUSE = Fault("refuse", refuse=True)
BLACK_HOLE = Fault("black hole", swallow=True)
LATENCY = Fault("latency", latency_s=0.05, jitter_s=0.04)
STALL = Fault("stall", latency_s=3.0, jitter_s=1.0)
BANDWIDTH = Fault("bandwidth", bytes_per_s=100)
RESET = Fault("reset", cut="reset")
TRUNCATE = Fault("truncate", cut="end")
CORRUPT = Fault("corrupt", corrupt=True)
FLAP = Fault("flap", flap_s=0.2)
FAULTS = (REFUSE, BLACK_HOLE, LATENCY, STALL, BANDWIDTH, RESET, TRUNCATE, CORRUPT, FLAP)


class Proxy:
    """Listens on a port of its own and passes everything on to `target`, as the fault of the moment allows."""

    def __init__(self, target: Target, seed: int = 1) -> None:
        self._target = target
        self._random = random.Random(seed)
        self._fault = WELL
        self._healed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flapping: asyncio.Task[None] | None = None
        self.port = 0
        self.accepted = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        await self.become(WELL)
        await self._unlisten()
        for task in self._links:
            task.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    @property
    def connections(self) -> int:
        return len(self._links)

    @asynccontextmanager
    async def broken(self, fault: Fault) -> AsyncIterator[None]:
        await self.become(fault)
        try:
            yield
        finally:
            await self.become(WELL)

    async def become(self, fault: Fault) -> None:
        if self._flapping is not None:
            self._flapping.cancel()
            await asyncio.gather(self._flapping, return_exceptions=True)
            self._flapping = None
        await self._enter(fault)
        if fault.flap_s:
            self._flapping = asyncio.create_task(self._flap(fault.flap_s))

    async def _enter(self, fault: Fault) -> None:
        self._fault = fault
        self._healed.set()  # whoever waits looks again
        self._healed = asyncio.Event()
        if fault.refuse:
            await self._unlisten()
        elif self._server is None:
            await self.start()

    async def _flap(self, every_s: float) -> None:
        while True:
            await self._enter(REFUSE)
            await asyncio.sleep(every_s)
            await self._enter(WELL)
            await asyncio.sleep(every_s)

    async def _unlisten(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for writer in list(self._writers):
            _reset(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        self._writers.add(writer)
        upstream: asyncio.StreamWriter | None = None
        try:
            answers, upstream = await self._connect()
            self._writers.add(upstream)
            await _first_to_end(self._pass_on(reader, upstream), self._answer(answers, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._links.discard(task)
            for each in (writer, upstream):
                if each is not None:
                    self._writers.discard(each)
                    each.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._target, Path):
            return await asyncio.open_unix_connection(str(self._target))
        return await asyncio.open_connection(*self._target)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            await self._until(lambda: not self._fault.swallow)
            writer.write(data)
            await writer.drain()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            await self._until(lambda: not self._fault.swallow)
            fault = self._fault
            await self._pause(fault.latency_s and max(0.0, self._random.gauss(fault.latency_s, fault.jitter_s)))
            if fault.corrupt:
                data = bytes(byte ^ 0x5A if at % 7 == 3 else byte for at, byte in enumerate(data))
            if fault.cut:
                writer.write(data[: len(data) // 2])
                with contextlib.suppress(OSError):
                    await writer.drain()
                if fault.cut == "reset":
                    _reset(writer)
                return
            await self._send(writer, data, fault)

    async def _send(self, writer: asyncio.StreamWriter, data: bytes, fault: Fault) -> None:
        part = max(1, fault.bytes_per_s // 20) if fault.bytes_per_s else len(data)
        for start in range(0, len(data), part):
            writer.write(data[start : start + part])
            await writer.drain()
            if fault is self._fault and fault.bytes_per_s:
                await self._pause(part / fault.bytes_per_s)

    async def _pause(self, seconds: float) -> None:
        """Shorter where the fault ends."""
        if seconds:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._healed.wait()

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._healed.wait()


async def _first_to_end(*work: object) -> None:
    """A connection is over when either side of it is."""
    tasks = [asyncio.ensure_future(each) for each in work]  # type: ignore[arg-type]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _reset(writer: asyncio.StreamWriter) -> None:
    link: socket.socket | None = writer.get_extra_info("socket")
    if link is not None and link.family == socket.AF_INET:
        with contextlib.suppress(OSError):
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
    writer.transport.abort()


@asynccontextmanager
async def proxied(target: Target) -> AsyncIterator[Proxy]:
    proxy = Proxy(target)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
