"""The documentation, held to the code: links, settings, metrics, commands, endpoints and examples."""

import ast
import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import annotated_types
import click
import pytest
import typer
from prometheus_client import Metric

from service import cli, metrics
from service.api import handlers
from service.api.limits import Limits
from service.app import create_app
from service.settings import Settings

ROOT = Path(__file__).parents[2]
TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES = TOP + sorted((ROOT / "docs").rglob("*.md"))
DECISIONS = sorted((ROOT / "docs/decisions").glob("*.md"))
OPERATIONS = ROOT / "docs/operations.md"

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def text(*pages: Path) -> str:
    return "\n".join(page.read_text("utf-8") for page in pages or PAGES)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def code(page: Path) -> str:
    """What is marked as code: the fenced blocks, then the spans between backticks, a line each."""
    fenced = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
    source = page.read_text("utf-8")
    return "\n".join([*fenced.findall(source), *re.findall(r"`([^`]+)`", fenced.sub("", source))])


def table(page: Path, header: str) -> list[str]:
    """The rows below a table's header."""
    lines = page.read_text("utf-8").splitlines()
    rows = lines[lines.index(header) + 2 :]
    end = next((at for at, row in enumerate(rows) if not row.startswith("|")), len(rows))
    return rows[:end]


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@each_page
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if re.match(r"[a-z]+:", link):
            continue
        assert target.exists(), f"{link} leads nowhere"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text("utf-8"), re.MULTILINE)
            assert anchor in map(slug, headings), f"{link}: there is no such heading"


def test_the_pages_link_to_every_page() -> None:
    linked = re.findall(r"\]\(([^)\s#]+)\)", text(ROOT / "README.md"))
    unlinked = [p for p in PAGES[1:] if p not in DECISIONS and str(p.relative_to(ROOT)) not in linked]
    assert unlinked == [], "README.md should link to these"


def bounds(field: Any) -> str:
    if get_origin(field.annotation) is not None and set(map(type, get_args(field.annotation))) == {str}:
        return ", ".join(get_args(field.annotation))
    low = [f"{bound.ge:,}" for bound in field.metadata if isinstance(bound, annotated_types.Ge)]
    high = [f"{bound.le:,}" for bound in field.metadata if isinstance(bound, annotated_types.Le)]
    pattern = [cell(f"`{bound.pattern}`") for bound in field.metadata if getattr(bound, "pattern", None)]
    spans = {(1, 1): "{} to {}", (1, 0): "from {}", (0, 1): "up to {}"}
    return "".join(pattern) or spans.get((len(low), len(high)), "").format(*low, *high)


def cell(content: str) -> str:
    """A pipe ends a table's cell, even within code."""
    return content.replace("|", "\\|")


def setting_rows(limits: bool) -> list[str]:
    rows = []
    for name, field in Settings.model_fields.items():
        if (name in Limits.model_fields) != limits:
            continue
        default = "unset" if field.default in (None, "") else f"`{str(field.default).replace('True', 'true')}`"
        about = cell(html.escape(field.description or "", quote=False))
        rows.append(f"| `BRAID_{name.upper()}` | {default} | {bounds(field)} | {about} |")
    return rows


def test_the_settings_table_says_what_the_settings_are() -> None:
    assert table(OPERATIONS, "| variable | default | bounds | what it is |") == setting_rows(limits=False)


def test_the_limits_table_says_what_the_limits_are() -> None:
    assert table(OPERATIONS, "| variable | default | bounds | at most so many |") == setting_rows(limits=True)


def options(command: click.Command) -> Iterator[tuple[str, str | None]]:
    """Every long option below a command, with the variable that also sets it."""
    for parameter in command.params:
        for name in parameter.opts + parameter.secondary_opts:
            yield name, parameter.envvar if isinstance(parameter.envvar, str) else None
    for child in getattr(command, "commands", {}).values():
        yield from options(child)


BRAID = typer.main.get_command(cli.app)


@each_page
def test_every_variable_exists(page: Path) -> None:
    known = {f"BRAID_{name.upper()}" for name in Settings.model_fields} | {env for _, env in options(BRAID) if env}
    assert set(re.findall(r"\bBRAID_[A-Z_]+\b", text(page))) - known == set()


def exposed(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def metric_rows() -> list[str]:
    rows = []
    for collector in vars(metrics).values():
        if hasattr(collector, "_labelnames"):
            [metric] = collector.collect()
            labels = ", ".join(f"`{label}`" for label in collector._labelnames)
            rows.append(f"| `{exposed(metric)}` | {metric.type} | {labels} | {metric.documentation} |")
    return rows


def test_the_metrics_table_says_what_the_metrics_are() -> None:
    assert table(OPERATIONS, "| metric | type | labels | what it counts |") == metric_rows()


@each_page
def test_every_metric_exists(page: Path) -> None:
    known = {exposed(metric) for metric in metrics.REGISTRY.collect()}
    assert set(re.findall(r"\bbraid_[a-z]+_[a-z_]+\b", text(page))) - known == set()


def targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):.*## ", text(ROOT / "Makefile"), re.MULTILINE))


@each_page
def test_every_make_command_exists(page: Path) -> None:
    assert set(re.findall(r"\bmake ([a-z]+)\b", code(page))) - targets() == set()


def test_every_make_command_is_documented() -> None:
    shown = set(re.findall(r"\bmake ([a-z]+)\b", "\n".join(map(code, PAGES))))
    assert targets() - {"help"} - shown == set()


def commands(command: click.Command, path: str = "braid") -> dict[str, click.Command]:
    below = getattr(command, "commands", {})
    found = {path: command} if not below else {}
    for name, child in below.items():
        found |= commands(child, f"{path} {name}")
    return found


def shown_commands(page: Path) -> list[str]:
    """What follows the word braid where that begins a command; `exec braid braid ...` is one command."""
    lines = code(page).replace("braid braid ", "braid ").splitlines()
    return [found[0] for line in lines if (found := re.search(r"(?<![.\w])braid [a-z-].*", line))]


@each_page
def test_every_braid_command_and_option_exists(page: Path) -> None:
    known = commands(BRAID)
    for shown in shown_commands(page):
        named = next((name for name in known if re.match(rf"{name}\b", shown)), None)
        assert named, f"there is no command in: {shown}"
        asked = set(re.findall(r"(?<=\s)--[a-z-]+", shown.partition("#")[0]))
        assert asked - {"--help"} - {name for name, _ in options(known[named])} == set(), shown


def test_every_braid_command_is_documented() -> None:
    shown = "\n".join(line for page in PAGES for line in shown_commands(page))
    assert [name for name in commands(BRAID) if name not in shown] == []


PATHS = create_app(Settings()).openapi()["paths"]
OPERATIONS_OF_THE_API = {(method.upper(), path) for path, methods in PATHS.items() for method in methods}


def test_every_endpoint_is_documented_and_no_other() -> None:
    shown = re.findall(r"\b(GET|POST|PUT|DELETE|PATCH) (/[\w/{}]*)", "\n".join(map(code, PAGES)))
    assert set(shown) == OPERATIONS_OF_THE_API


@each_page
def test_every_path_in_an_example_exists(page: Path) -> None:
    known = [re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)) for path in PATHS]
    for shown in re.findall(r"/v1/[\w/{}-]*", code(page)):
        assert any(re.fullmatch(path, shown) for path in known), f"there is no {shown}"


def test_every_error_code_is_documented() -> None:
    codes = {code for _, code, _ in handlers._TABLE.values()}
    codes |= set(re.findall(r'problem\(request, \d+, "(\w+)"', text(ROOT / "service/api/handlers.py")))
    rows = table(ROOT / "docs/guide.md", "| status | `code` | when |")
    assert codes - set(re.findall(r"`(\w+)`", "\n".join(rows))) == set()


def whole(block: str) -> str:
    """A shortened example without its marks: `…, ` and `, …` between values go, within a text they stay."""
    return re.sub(r",\s*…|…\s*,|…(?=\s*[\]}])", "", block)


@each_page
def test_every_json_example_can_be_read(page: Path) -> None:
    for block in blocks(page, "json"):
        json.loads(whole(block))


@each_page
def test_every_body_in_a_shell_example_is_json(page: Path) -> None:
    for block in blocks(page, "sh"):
        for body in re.findall(r"(?:-d |printf '%s\\n' \\\n\s*)'([^']+)'", block):
            json.loads(body)


@each_page
def test_every_python_example_can_be_read(page: Path) -> None:
    for block in blocks(page, "python"):
        ast.parse(block)


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_says_why_and_what_follows(page: Path) -> None:
    said = re.findall(r"^\*\*(\w+)\.\*\*", text(page), re.MULTILINE)
    assert said == ["Context", "Decision", "Consequence"]
    assert text(page).startswith(f"# {page.name[:4]} ")


def test_decisions_are_numbered_without_a_gap() -> None:
    assert [page.name[:4] for page in DECISIONS] == [f"{number:04}" for number in range(1, len(DECISIONS) + 1)]
