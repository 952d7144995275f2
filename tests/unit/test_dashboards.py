"""Dashboards and rules: written from Python, over metrics that exist, in the manual, and tested with promtool."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from dashboards.__main__ import HERE, files
from dashboards.boards import BOARDS
from dashboards.slo import rules
from service import metrics
from tests.unit.test_docs import OPERATIONS, table

RULES = [rule for group in yaml.safe_load(rules())["groups"] for rule in group["rules"]]
PANELS = [(board, panel) for board in BOARDS for panel in board.panels]
QUERIES = [query for _, panel in PANELS for query in panel.queries.values()] + [rule["expr"] for rule in RULES]

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian: prometheus) is missing")
each_board = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_a_file_is_what_python_writes(path: Path) -> None:
    assert path.read_text("utf-8") == files()[path], "run `python -m dashboards`"


def test_no_other_dashboard_is_there() -> None:
    assert set(HERE.glob("grafana/*.json")) == {path for path in files() if path.suffix == ".json"}


def test_every_query_is_over_what_braid_has_or_a_rule_records() -> None:
    known = {sample.name for metric in metrics.REGISTRY.collect() for sample in metric.samples}
    known |= {f"{metric.name}_{end}" for metric in metrics.REGISTRY.collect() for end in ("total", "bucket", "count")}
    known |= {metric.name for metric in metrics.REGISTRY.collect()}
    recorded = {rule["record"] for rule in RULES if "record" in rule}
    used = {name for query in QUERIES for name in re.findall(r"\bbraid[_:][\w:]+", query)}
    assert used - known - recorded == set()


@each_board
def test_a_dashboard_asks_the_provisioned_datasource_and_numbers_its_panels(board) -> None:
    provisioned = yaml.safe_load((HERE / "grafana/provisioning/datasources/prometheus.yml").read_text())
    panels = json.loads(board.json())["panels"]
    sources = {panel["datasource"]["uid"] for panel in panels if panel["type"] != "row"}
    assert sources == {source["uid"] for source in provisioned["datasources"]}
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(target["expr"] for panel in panels for target in panel.get("targets", []))


def test_the_manual_says_what_each_panel_means() -> None:
    rows = [f"| {board.title} | {panel.title} | {panel.means} |" for board, panel in PANELS]
    assert table(OPERATIONS, "| dashboard | panel | what it shows |") == rows


def test_the_manual_says_what_to_do_about_each_alert() -> None:
    alerts = {rule["alert"] for rule in RULES if "alert" in rule}
    rows = "\n".join(table(OPERATIONS, "| alert | means | what to do |"))
    assert set(re.findall(r"`(Braid\w+)`", rows)) == alerts


@needs_promtool
def test_the_rules_pass_their_own_tests() -> None:
    ran = subprocess.run(
        ["promtool", "test", "rules", str(HERE / "rules/braid_test.yml")], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_alert_has_a_test() -> None:
    """A burn that only differs in its windows is tested for one objective."""
    tested = set(re.findall(r"alertname: (\w+)", (HERE / "rules/braid_test.yml").read_text()))
    kinds = {re.sub(r"(BurnsFast|Burns|Smoulders)$", "", alert) for alert in tested}
    alerts = {rule["alert"] for rule in RULES if "alert" in rule}
    assert {re.sub(r"(BurnsFast|Burns|Smoulders)$", "", alert) for alert in alerts} == kinds


@needs_promtool
def test_prometheus_can_read_its_configuration() -> None:
    checked = subprocess.run(
        ["promtool", "check", "config", str(HERE / "prometheus.yml")], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
