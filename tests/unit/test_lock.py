"""The lock files: complete, hashed, and naming no registry and no machine."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME, DEV = ROOT / "requirements.lock", ROOT / "requirements-dev.lock"

each_lock = pytest.mark.parametrize("lock", [RUNTIME, DEV], ids=lambda path: path.name)


def requirements(lock: Path) -> list[str]:
    return [line for line in lock.read_text().replace("\\\n", " ").splitlines() if line.strip()]


def pins(lock: Path) -> set[str]:
    """`name==version` of each requirement, without markers and hashes."""
    return {re.split(r"[ ;]", line)[0] for line in requirements(lock)}


def names(specifiers: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9._-]", text)[0].lower().replace("_", "-") for text in specifiers}


@each_lock
def test_every_requirement_is_one_version_with_hashes(lock: Path) -> None:
    line = re.compile(r"[a-z0-9._-]+==\S+ (;[^\\]+? )?( *--hash=sha256:[0-9a-f]{64})+ *")
    assert [text for text in requirements(lock) if not line.fullmatch(text)] == []


@each_lock
def test_no_registry_and_no_path_is_named(lock: Path) -> None:
    assert re.findall(r"https?:|file:|^-.*|.*/.*|.*@.*", lock.read_text(), re.MULTILINE) == []


def test_the_runtime_lock_has_every_dependency_and_the_build_backend() -> None:
    wanted = names(PROJECT["project"]["dependencies"]) | names(PROJECT["build-system"]["requires"])
    assert wanted - names(list(pins(RUNTIME))) == set()


def test_the_development_lock_has_every_tool_and_every_extra() -> None:
    extras = [text for extra in PROJECT["project"]["optional-dependencies"].values() for text in extra]
    wanted = names(PROJECT["dependency-groups"]["dev"]) | names(extras)
    assert wanted - names(list(pins(DEV))) == set()


def test_both_locks_agree_so_that_tests_run_what_is_served() -> None:
    assert pins(RUNTIME) - pins(DEV) == set()
