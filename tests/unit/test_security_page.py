"""The threat model in docs/security.md, held to the tests that it names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/security.md").read_text("utf-8")
HEADER = "| who | through what | what stops them | which test shows it |"


def named(text: str) -> list[tuple[str, str]]:
    """Each test that stands there as `path::name`."""
    return re.findall(r"`(tests/[\w/]+\.py)::([\w:]+)`", text)


def functions_of(path: Path) -> set[str]:
    """`test_it`, or `TestThem::test_it` for one in a class."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        below = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        functions = [each for each in below if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))]
        found |= {f"{prefix}{each.name}" for each in functions}
    return found


def test_every_named_test_exists() -> None:
    missing = [f"{path}::{name}" for path, name in named(PAGE) if name not in functions_of(ROOT / path)]
    assert missing == []


def test_every_named_file_exists() -> None:
    assert [path for path in re.findall(r"`(tests/[\w/]+\.py)", PAGE) if not (ROOT / path).exists()] == []


def test_every_attack_names_its_proof() -> None:
    lines = PAGE.splitlines()
    start = lines.index(HEADER) + 2
    rows = lines[start : lines.index("", start)]
    assert len(rows) > 20
    assert [row for row in rows if not named(row)] == []


def test_every_sabotage_is_in_the_threat_model() -> None:
    """What a wall's fall would show must be told here, or nobody knows that it is proven."""
    walls = {name for name in functions_of(ROOT / "tests/isolation/test_sabotage.py") if "TestAT" in name}
    assert walls - {name for _, name in named(PAGE)} == set()
