"""The audit of dependencies fails on a vulnerability only, and never takes silence for an all-clear."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

PATH = Path(__file__).parents[2] / ".ci/audit.py"
SPEC = importlib.util.spec_from_file_location("audit", PATH)
assert SPEC is not None
assert SPEC.loader is not None
audit = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(audit)

SOUND = {"name": "a", "version": "1", "vulns": []}
FAULTY = {"name": "b", "version": "2", "vulns": [{"id": "CVE-2026-1"}]}
UNKNOWN = {"name": "c", "skip_reason": "Dependency not found on PyPI and could not be audited: c (3)"}


@pytest.mark.parametrize(
    ("dependencies", "said", "failed"),
    [
        ([], "nothing was checked", False),
        ([UNKNOWN, UNKNOWN], "nothing was checked", False),
        ([SOUND, UNKNOWN], "1 of 2 dependencies were looked up, 0 vulnerabilities are known", False),
        ([SOUND, FAULTY], "1 vulnerabilities are known\n  b 2: CVE-2026-1", True),
    ],
)
def test_the_verdict(dependencies: list[dict[str, Any]], said: str, failed: bool) -> None:
    words, fails = audit.verdict(dependencies)
    assert said in words
    assert fails is failed


def test_ci_asks_for_it() -> None:
    assert "make audit" in (PATH.parent / "run").read_text()
