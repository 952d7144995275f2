"""What panels are made of: one line a panel, laid out in the order they are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as shared
from grafana_foundation_sdk.models import dashboard as model

SOURCE = model.DataSourceRef(type_val="prometheus", uid="prometheus")
PER_SECOND, SECONDS, SHARE, COUNT = "ops", "s", "percentunit", "short"
_CIRCUIT = {"0": ("closed", "green"), "1": ("half-open", "yellow"), "2": ("open", "red")}


@dataclass(frozen=True, slots=True)
class Panel:
    """A question to Prometheus and how its answer is drawn. `means` is its description, and its row in the manual."""

    title: str
    means: str
    unit: str
    queries: dict[str, str]  # legend: expression
    kind: str = "lines"
    width: int = 12
    alarm: float | None = None

    def built(self) -> Any:
        height = 4 if self.kind == "number" else 8
        panel = _KINDS[self.kind]().title(self.title).description(self.means).unit(self.unit).datasource(SOURCE)
        for ref, (legend, expression) in zip("ABCDEF", self.queries.items(), strict=False):
            panel.with_target(prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(ref).range())
        steps = [model.Threshold(None, "green")]
        if self.alarm is not None:
            steps.append(model.Threshold(self.alarm, "red"))
        panel.thresholds(dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps))
        return panel.span(self.width).height(height)


def _lines() -> timeseries.Panel:
    return timeseries.Panel().min(0).line_width(2).fill_opacity(10).show_points(shared.VisibilityMode.NEVER)


def _stack() -> timeseries.Panel:
    return _lines().fill_opacity(40).stacking(common.StackingConfig().mode(shared.StackingMode.NORMAL).group("A"))


def _number() -> stat.Panel:
    last = common.ReduceDataOptions().calcs(["lastNotNull"])
    return stat.Panel().reduce_options(last).graph_mode(shared.BigValueGraphMode.AREA)


def _circuit() -> statetimeline.Panel:
    named = {value: model.ValueMappingResult(text=text, color=color) for value, (text, color) in _CIRCUIT.items()}
    return statetimeline.Panel().mappings([model.ValueMap(named)]).show_value(shared.VisibilityMode.AUTO)


_KINDS: dict[str, Any] = {"lines": _lines, "stack": _stack, "number": _number, "circuit": _circuit}


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard: rows of panels, each with a heading."""

    uid: str
    title: str
    means: str
    rows: dict[str, Sequence[Panel]]
    by_tenant: bool = False

    @property
    def panels(self) -> list[Panel]:
        return [panel for row in self.rows.values() for panel in row]

    def json(self) -> str:
        built = dashboard.Dashboard(f"Braid: {self.title}").uid(self.uid).description(self.means).tags(["braid"])
        built.readonly().refresh("10s").time("now-1h", "now").timezone("browser")
        built.tooltip(model.DashboardCursorSync.CROSSHAIR)
        others = dashboard.DashboardLink("Braid").type(model.DashboardLinkType.DASHBOARDS).tags(["braid"])
        built.link(others.as_dropdown(True).keep_time(True))
        if self.by_tenant:
            built.with_variable(_tenants())
        number = 0
        for heading, panels in self.rows.items():
            number += 1
            built.with_row(dashboard.Row(heading).id(number))
            for panel in panels:
                number += 1
                built.with_panel(panel.built().id(number))
        return JSONEncoder(sort_keys=True, indent=2).encode(built.build()) + "\n"


def _tenants() -> dashboard.QueryVariable:
    choice = dashboard.QueryVariable("tenant").label("Tenant").datasource(SOURCE).multi(True).include_all(True)
    choice.query("label_values(braid_searches_total, tenant)").all_value(".*")
    choice.refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
    return choice.current(model.VariableOption(True, "All", "$__all"))
