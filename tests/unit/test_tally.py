"""What a search counts as, in samples that survive a failed save."""

from __future__ import annotations

from service import metrics
from service.model import Contribution, Document, Found, Ranked, SearchResult, Status, TierAnswer
from service.tally import Tally

TENANT = "11111111-1111-4111-8111-111111111111"
SHARE = Contribution(1, 1.0, 1.0, 1.0, 1.0, 1.0, "minmax")


class Clock:
    """A clock that stands still until told otherwise."""

    def __init__(self) -> None:
        self.now = 6000.0

    def __call__(self) -> float:
        return self.now


def result(*found_by: str, degraded: bool = False, took_ms: float = 4.0) -> SearchResult:
    """A result for each string, whose words are the tiers that found it."""
    results = tuple(
        Found(Document(str(n)), Ranked(str(n), 1.0, dict.fromkeys(tiers.split(), SHARE)))
        for n, tiers in enumerate(found_by)
    )
    return SearchResult(results, {}, {}, {}, ("default",), degraded, took_ms)


def test_a_result_counts_once_for_each_tier_that_found_it() -> None:
    tally = Tally(Clock())
    tally.answered(TENANT, result("keyword vector", "keyword", "graph"))
    [sample] = tally.unsaved().values()
    hits = {name: count for name, count in sample.items() if name.startswith("tiers.")}
    assert hits == {
        "tiers.keyword.hits": 2,
        "tiers.vector.hits": 1,
        "tiers.graph.hits": 1,
        "tiers.keyword.unique": 1,
        "tiers.graph.unique": 1,
    }


def test_outcomes_and_times_are_counted_also_of_searches_that_failed() -> None:
    tally = Tally(Clock())
    tally.answered(TENANT, result(took_ms=4.0))
    tally.answered(TENANT, result("keyword", degraded=True, took_ms=5.0))
    tally.failed(TENANT, 1000.0)
    [sample] = tally.unsaved().values()
    assert sample["searches.full"] == sample["searches.degraded"] == sample["searches.failed"] == 1
    assert sample["searches.empty"] == 1
    assert sample["ms"] == 1009
    assert (sample["took.3"], sample["took.15"]) == (2, 1)  # up to 5 ms, up to 1200 ms


def test_a_tier_is_counted_by_what_became_of_it() -> None:
    tally = Tally(Clock())
    tally.asked(TENANT, [TierAnswer("keyword", Status.OK, (), 2.5), TierAnswer("vector", Status.TIMEOUT, (), 250.0)])
    [sample] = tally.unsaved().values()
    assert (sample["tiers.keyword.ok"], sample["tiers.keyword.ms"]) == (1, 2.5)
    assert (sample["tiers.vector.timeout"], sample["tiers.vector.ms"]) == (1, 250.0)


def test_what_is_not_saved_stays_and_what_grew_meanwhile_is_saved_again() -> None:
    tally = Tally(Clock())
    tally.failed(TENANT, 1.0)
    taken = tally.unsaved()
    assert tally.unsaved() == taken  # a save that failed
    tally.failed(TENANT, 1.0)
    tally.saved(taken)
    [sample] = tally.unsaved().values()
    assert sample["searches.failed"] == 2  # the whole minute so far, not what was added
    tally.saved(tally.unsaved())
    assert tally.unsaved() == {}


def test_a_minute_goes_on_after_it_was_saved() -> None:
    """A sample replaces the one that was saved before, so it must not begin anew."""
    clock = Clock()
    tally = Tally(clock)
    tally.failed(TENANT, 1.0)
    tally.saved(tally.unsaved())
    tally.failed(TENANT, 1.0)
    assert tally.unsaved()[TENANT, 100]["searches.failed"] == 2
    tally.saved(tally.unsaved())
    clock.now += 180
    tally.failed(TENANT, 1.0)
    tally.saved(tally.unsaved())
    clock.now -= 180  # somebody set the clock
    tally.failed(TENANT, 1.0)
    assert tally.unsaved() == {(TENANT, 103): {"searches.failed": 2, "ms": 2, "took.0": 2}}


def test_minutes_that_are_over_and_saved_are_forgotten() -> None:
    clock = Clock()
    tally = Tally(clock)
    for _ in range(10):
        tally.failed(TENANT, 1.0)
        tally.saved(tally.unsaved())
        clock.now += 60
    assert len(tally._samples) <= 2


def test_a_tenants_series_begin_at_zero_so_that_no_first_event_is_lost_to_a_rate(monkeypatch) -> None:
    monkeypatch.setattr(metrics, "_labelled", set())
    metrics.tenant_label("begins")
    assert metrics.REGISTRY.get_sample_value("braid_searches_total", {"tenant": "begins", "outcome": "failed"}) == 0
    labels = {"tenant": "begins", "tier": "graph"}
    assert metrics.REGISTRY.get_sample_value("braid_tier_unique_hits_total", labels) == 0


def test_the_first_hundred_tenants_have_a_label_and_the_others_share_one(monkeypatch) -> None:
    monkeypatch.setattr(metrics, "_labelled", set())
    before = metrics.TENANTS_WITHOUT_LABEL._value.get()
    assert [metrics.tenant_label(str(n)) for n in range(100)] == [str(n) for n in range(100)]
    assert [metrics.tenant_label(n) for n in ("100", "5", "101")] == ["_other", "5", "_other"]
    assert metrics.TENANTS_WITHOUT_LABEL._value.get() - before == 2
