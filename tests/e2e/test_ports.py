"""`braid serve` with a port for operators: what each port answers, and what neither says about the server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]
START_SECONDS = 60


def free_ports() -> tuple[int, int]:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(2)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return taken[0].getsockname()[1], taken[1].getsockname()[1]


@pytest.fixture(scope="module")
def ports() -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Clients of the main port and of the operators' one."""
    main, ops = free_ports()
    with tempfile.TemporaryDirectory(prefix="bt-", dir="/tmp") as folder:
        settings = {"BRAID_PORT": str(main), "BRAID_OPS_PORT": str(ops), "BRAID_SAMPLE": "false"}
        environment = os.environ | settings | {"BRAID_DATA_DIR": f"{folder}/d", "BRAID_KEY_PEPPER": "x" * 32}
        command = [sys.executable, "-m", "service.cli", "serve"]
        serving = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL)
        with (
            httpx.Client(base_url=f"http://127.0.0.1:{main}") as one,
            httpx.Client(base_url=f"http://127.0.0.1:{ops}") as other,
        ):
            try:
                wait_for(one, serving)
                yield one, other
            finally:
                serving.send_signal(signal.SIGTERM)
                serving.wait(30)


def wait_for(client: httpx.Client, serving: subprocess.Popen[bytes]) -> None:
    """A request waits in the listening socket until the engines are up."""
    began = time.monotonic()
    while True:
        assert serving.poll() is None, "braid serve ended"
        assert time.monotonic() - began < START_SECONDS
        try:
            client.get("/healthz", timeout=START_SECONDS)
        except httpx.TransportError:
            time.sleep(0.05)
        else:
            return


@pytest.mark.parametrize(
    ("path", "on_main", "on_ops"),
    [
        ("/healthz", 200, 200),
        ("/readyz", 200, 200),
        ("/metrics", 404, 200),
        ("/v1/admin/tenants", 404, 401),
        ("/v1/admin", 404, 404),
        ("/v1/namespaces", 401, 404),
        ("/v1/search?q=x", 401, 404),
        ("/docs", 200, 404),
        ("/", 200, 404),
    ],
)
def test_each_port_answers_for_its_own(
    ports: tuple[httpx.Client, httpx.Client], path: str, on_main: int, on_ops: int
) -> None:
    main, ops = ports
    assert (main.get(path).status_code, ops.get(path).status_code) == (on_main, on_ops)


def test_a_port_cannot_be_talked_into_being_the_other(ports: tuple[httpx.Client, httpx.Client]) -> None:
    main, ops = ports
    claims = {"Host": ops.base_url.netloc.decode(), "X-Forwarded-Host": ops.base_url.netloc.decode()}
    for path in ("/metrics", "/%6detrics", "/metrics/", "/v1/admin/tenants", "/v1/./admin/tenants"):
        answer = main.get(path, headers=claims)  # a redirect to the claimed host is the client's own affair
        assert answer.status_code in (307, 404), path


def test_no_answer_names_the_server(ports: tuple[httpx.Client, httpx.Client]) -> None:
    for client in ports:
        assert "server" not in client.get("/healthz").headers


def test_a_taken_port_is_named() -> None:
    main, ops = free_ports()
    with socket.socket() as holder, tempfile.TemporaryDirectory(prefix="bt-", dir="/tmp") as folder:
        holder.bind(("127.0.0.1", ops))
        holder.listen()
        settings = {"BRAID_PORT": str(main), "BRAID_OPS_PORT": str(ops), "BRAID_DATA_DIR": f"{folder}/d"}
        done = subprocess.run(
            [sys.executable, "-m", "service.cli", "serve"],
            env=os.environ | settings,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 1
    assert "set BRAID_OPS_PORT to a free port" in done.stderr.replace("\n", " ")
