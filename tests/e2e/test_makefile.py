"""The Makefile's first words to a newcomer."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the environment is made from, with no .venv yet."""
    for name in ("Makefile", "pyproject.toml", "requirements.lock", "requirements-dev.lock"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def make(checkout: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", *arguments], cwd=checkout, env=inherited | environment, capture_output=True, text=True, check=False
    )


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """The one line Braid says, without the line make adds to any failure."""
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_make_alone_lists_the_commands(checkout: Path) -> None:
    listed = [line.split()[0] for line in make(checkout).stdout.splitlines()[1:]]
    commands = ["help", "serve", "test", "audit", "crash", "bench", "chaos", "soak", "lock", "clean"]
    assert listed == commands


def test_a_python_of_the_wrong_version_is_named_with_what_to_do(checkout: Path) -> None:
    old = script(checkout / "old-python", 'case "$2" in *print*) echo 3.9;; *) exit 1;; esac')
    said = complaint(make(checkout, "serve", f"PYTHON={old}"))
    assert "is Python 3.9, and Braid needs 3.11, 3.12 or 3.13" in said
    assert "make serve PYTHON=" in said


def test_a_python_that_does_not_run_is_named_with_what_to_do(checkout: Path) -> None:
    assert "PYTHON=/no/such/python does not run" in complaint(make(checkout, "serve", "PYTHON=/no/such/python"))


def test_a_python_without_venv_says_which_package_to_install(checkout: Path) -> None:
    bare = script(checkout / "bare-python", 'case "$2" in *print*) echo 3.12;; *ensurepip*) exit 1;; *) exit 0;; esac')
    assert "install python3-venv" in complaint(make(checkout, "serve", f"PYTHON={bare}"))


def test_a_failed_install_says_where_its_log_is(checkout: Path) -> None:
    (checkout / "requirements.lock").write_text("no-such-package==1.0\n")
    assert "the whole log is in .venv/install.log" in complaint(make(checkout, "serve"))


@pytest.mark.parametrize("target", ["serve", "test", "audit", "bench", "lock", "clean"])
def test_every_command_is_written_in_a_form_make_can_read(checkout: Path, target: str) -> None:
    assert make(checkout, "--dry-run", target).returncode == 0
