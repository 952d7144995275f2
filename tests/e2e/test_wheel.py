"""The built wheel, installed into an empty environment and started far from the checkout."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
START_SECONDS = 60


def run(*command: str | Path, cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, cwd=ROOT)
    return next(out.glob("braid_search-*.whl"))


@pytest.fixture(scope="module")
def braid(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `braid` command of an environment that has the wheel and the runtime lock, and nothing else."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home / "venv", with_pip=False)
    python = home / "venv/bin/python"
    uv = Path(sys.executable).with_name("uv")  # checks the same hashes as pip does
    run(uv, "pip", "install", "--python", python, "--require-hashes", "-r", ROOT / "requirements.lock", cwd=home)
    run(uv, "pip", "install", "--python", python, "--no-deps", wheel, cwd=home)
    return home / "venv/bin/braid"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@pytest.mark.parametrize(
    "pattern",
    [
        r"service/migrations/\d{4}_\w+\.sql",
        r"service/sample/documents\.jsonl",
        r"service/ui/.+\.html",
        r"service/ui/static/.+\.js",
        r"service/ui/static/.+\.css",
        r"service/dashboards/grafana/.+\.json",
    ],
)
def test_what_braid_reads_at_run_time_travels_in_the_wheel(wheel: Path, pattern: str) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if re.fullmatch(pattern, name)]


def test_the_wheel_serves_outside_the_checkout_and_stops_on_ctrl_c(braid: Path, tmp_path: Path) -> None:
    port, output = free_port(), tmp_path / "output"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("BRAID_", "PYTHON"))}
    settings = {"BRAID_HOST": "127.0.0.1", "BRAID_PORT": str(port), "BRAID_DATA_DIR": str(tmp_path / "data")}
    with output.open("w") as sink:
        process = subprocess.Popen([braid, "serve"], cwd=tmp_path, env=clean | settings, stdout=sink, stderr=sink)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not healthy(port) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert healthy(port), output.read_text()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0, output.read_text()
        assert "API key" in output.read_text()
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(tmp_path / "data", ignore_errors=True)
