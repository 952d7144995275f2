// Charts over time, drawn by Chart.js, in the page's own colours.

const charts = new Map();
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Draws the chart in a canvas, or brings it up to date. A line is `{name, paint, values, dashed}`; `stacked` piles them up. */
export function plot(id, at, lines, {stacked = false, unit = ""} = {}) {
  const canvas = document.getElementById(id);
  canvas.setAttribute(
    "aria-label",
    lines.map(({name, values}) => `${name}: ${last(values) ?? "none"}${unit}`).join(", "),
  );
  const chart = charts.get(id) ?? begin(id, canvas, stacked, unit);
  chart.data.labels = at.map((seconds) => seconds * 1000);
  chart.data.datasets = lines.map((line) => dataset(line, stacked));
  tint(chart);
  chart.update("none");
}

const last = (values) => values.findLast((value) => value !== null);

function begin(id, canvas, stacked, unit) {
  const options = {
    animation: false,
    responsive: true,
    maintainAspectRatio: false,
    interaction: {mode: "index", intersect: false},
    scales: {
      x: {
        type: "time",
        stacked,
        grid: {display: false},
        ticks: {maxRotation: 0, autoSkipPadding: 24},
        time: {displayFormats: {minute: "HH:mm", hour: "HH:mm", day: "d MMM"}, tooltipFormat: "d MMM HH:mm"},
      },
      y: {
        beginAtZero: true,
        stacked,
        grace: "5%",
        border: {display: false},
        ticks: {maxTicksLimit: 5, precision: unit ? undefined : 0},
      },
    },
    plugins: {
      legend: {
        position: "bottom",
        labels: {usePointStyle: true, pointStyle: "circle", pointStyleWidth: 9, boxHeight: 7, padding: 16},
      },
      tooltip: {callbacks: {label: ({dataset: {label}, parsed: {y}}) => ` ${label}: ${y}${unit}`}},
    },
  };
  const chart = new Chart(canvas, {type: stacked ? "bar" : "line", data: {labels: [], datasets: []}, options});
  charts.set(id, chart);
  return chart;
}

function dataset({name, paint, values, dashed}, stacked) {
  const line = {
    borderWidth: 2,
    cubicInterpolationMode: "monotone",
    pointRadius: lonely(values),
    pointHoverRadius: 4,
    spanGaps: true,
    borderDash: dashed ? [5, 4] : [],
  };
  const kind = dashed && stacked ? {type: "line", stack: "above", order: -1} : {};
  const bars =
    stacked && !dashed
      ? {backgroundColor: colour(paint), borderWidth: 0, borderRadius: 2, barPercentage: 1, categoryPercentage: 0.85}
      : line;
  return {label: name, data: values, borderColor: colour(paint), backgroundColor: colour(paint), ...bars, ...kind};
}

/** A line needs two values in a row; where there is one alone, it is a dot. */
const lonely = (values) =>
  values.map((value, at) => (value !== null && values[at - 1] == null && values[at + 1] == null ? 2.5 : 0));

function tint(chart) {
  const {x, y} = chart.options.scales;
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  x.ticks.color = y.ticks.color = chart.options.plugins.legend.labels.color = colour("dim");
  y.grid = {color: colour("line")};
}
