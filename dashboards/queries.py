"""The PromQL that panels share. Rates adapt to the scrape interval and to the time shown."""

from __future__ import annotations

RATE = "$__rate_interval"


def rate(metric: str, *by: str, where: str = "") -> str:
    """How much a counter grows a second, summed up by some labels or by none."""
    return f"{_summed(by)}(rate({metric}{_selected(where)}[{RATE}]))"


def quantile(q: float, histogram: str, *by: str, where: str = "") -> str:
    inner = f"sum by ({', '.join(['le', *by])}) (rate({histogram}_bucket{_selected(where)}[{RATE}]))"
    return f"histogram_quantile({q}, {inner})"


def mean(histogram: str, *by: str) -> str:
    return share(rate(f"{histogram}_sum", *by), rate(f"{histogram}_count", *by))


def share(part: str, whole: str) -> str:
    """Nothing of nothing is no share: those moments are left out."""
    return f"{part} / ({whole} > 0)"


def share_of_all(part: str, whole: str) -> str:
    """Of two sums without labels; a part that has never happened is 0."""
    return f"({part} or vector(0)) / ({whole} > 0)"


def _summed(by: tuple[str, ...]) -> str:
    return f"sum by ({', '.join(by)}) " if by else "sum"


def _selected(where: str) -> str:
    return f"{{{where}}}" if where else ""
