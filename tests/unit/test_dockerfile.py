"""The Dockerfile, read by hadolint and held to a few promises."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
FINAL_STAGE = DOCKERFILE.rpartition("\nFROM ")[2]


def test_hadolint_finds_nothing() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    lint = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (lint.returncode, lint.stdout + lint.stderr) == (0, "")


def test_every_base_image_is_pinned_to_one_version() -> None:
    bases = set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE))
    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-bookworm", bases.pop())


def test_the_image_installs_what_the_lock_names_and_nothing_else() -> None:
    installs = re.findall(r"pip install (.+)", DOCKERFILE)
    assert all("--require-hashes" in options or "--no-deps" in options for options in installs)


def test_the_container_runs_as_a_numbered_user_and_reports_its_health() -> None:
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", FINAL_STAGE, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK [^\n]*\\\n\s+CMD .*/healthz", FINAL_STAGE, re.MULTILINE)


def test_what_the_wheel_is_built_from_reaches_the_builder() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert kept == {"pyproject.toml", "README.md", "requirements.lock", "service", "migrations", "dashboards"}
