"""Activation and neighbour boost: numbers worked by hand, and what holds for any links."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.model import ActivationOptions, BoostOptions
from service.ranking.activation import Activation, Lift, Link, factor_of, lifts, spread, total


def test_a_neighbour_gets_the_product_of_all_that_lies_between() -> None:
    activated = spread([("a", 0.8)], [Link("a", "b", "evolved_from", 0.5)], ActivationOptions())
    # 1 x 0.8 x 0.5 x 0.8 x 0.5
    assert activated == {"b": Activation("a", "evolved_from", 0.8, 0.5, 0.8, 0.5, 1.0, pytest.approx(0.16))}


@pytest.mark.parametrize(
    ("type", "factor"),
    [
        *((type, 1.0) for type in ("supports", "part_of", "depends_on", "defines", "derived_from")),
        ("evolved_from", 0.8),
        ("related_to", 0.7),
        ("contradicts", 0.4),
        ("mentions_title", 0.5),
    ],
)
def test_every_type_of_link_has_its_factor(type: str, factor: float) -> None:
    assert factor_of(type) == factor
    assert spread([("a", 1.0)], [Link("a", "b", type, 1.0)], ActivationOptions())["b"].amount == factor * 0.5


def test_of_several_ways_to_a_document_the_best_counts() -> None:
    links = [Link("a", "c", "supports", 0.5), Link("b", "c", "supports", 1.0)]
    activated = spread([("a", 1.0), ("b", 0.6)], links, ActivationOptions())
    assert (activated["c"].seed, activated["c"].amount) == ("b", pytest.approx(0.3))  # and not 0.25 by way of a


def test_a_seed_can_be_activated_by_another_one() -> None:
    """Two documents that answer a question together lift each other."""
    links = [Link("a", "b", "supports", 1.0), Link("b", "a", "supports", 1.0)]
    activated = spread([("a", 1.0), ("b", 0.5)], links, ActivationOptions())
    assert {id: way.amount for id, way in activated.items()} == {"b": 0.5, "a": 0.25}


def test_only_the_first_seeds_pass_anything_on() -> None:
    links = [Link("a", "x", "supports", 1.0), Link("b", "y", "supports", 1.0)]
    assert set(spread([("a", 1.0), ("b", 0.5)], links, ActivationOptions(seeds=1))) == {"x"}


def test_a_seed_passes_on_to_its_best_neighbours_only() -> None:
    """Best by strength times factor: a contradiction of strength 1 counts less than support of 0.5."""
    links = [Link("a", id, "supports", 0.5) for id in "bcd"] + [Link("a", "e", "contradicts", 1.0)]
    assert set(spread([("a", 1.0)], links, ActivationOptions())) == {"b", "c", "d"}


def test_a_neighbour_counts_once_however_many_links_lead_to_it() -> None:
    links = [Link("a", "b", type, 1.0) for type in ("supports", "related_to", "defines", "x")]
    activated = spread([("a", 1.0)], [*links, Link("a", "c", "x", 0.1)], ActivationOptions(neighbours=2))
    assert {id: way.type for id, way in activated.items()} == {"b": "defines", "c": "x"}


def test_a_contradiction_is_a_conflict() -> None:
    activated = spread(
        [("a", 1.0)], [Link("a", "b", "contradicts", 1.0), Link("a", "c", "x", 1.0)], ActivationOptions()
    )
    assert (activated["b"].conflict, activated["c"].conflict) == (True, False)


def test_a_document_does_not_activate_itself() -> None:
    assert spread([("a", 1.0)], [Link("a", "a", "supports", 1.0)], ActivationOptions()) == {}


def test_neighbours_lift_by_their_better_score() -> None:
    links = [Link("a", "b", "x", 0.5), Link("a", "c", "y", 1.0)]
    gained = lifts({"a": 0.1, "b": 0.8, "c": 0.3}, links, BoostOptions(weight=0.2))
    # 0.2 x 0.5 x 0.8 x 0.5 and 0.2 x 1 x 0.3 x 0.5
    assert gained == {"a": (Lift("c", 1.0, 0.3, pytest.approx(0.03)), Lift("b", 0.5, 0.8, pytest.approx(0.04)))}
    assert total(gained["a"]) == pytest.approx(0.07)


def test_only_candidates_lift_and_are_lifted() -> None:
    links = [Link("a", "stranger", "x", 1.0), Link("stranger", "a", "x", 1.0), Link("a", "a", "x", 1.0)]
    assert lifts({"a": 1.0}, links, BoostOptions(weight=1.0)) == {}


def test_five_neighbours_lift_at_most_the_strongest_ones() -> None:
    scores = dict.fromkeys("abcdefgh", 1.0)
    links = [Link("a", id, "x", strength / 10) for strength, id in enumerate("bcdefgh", 1)]
    gained = lifts(scores, links, BoostOptions(weight=1.0))["a"]
    assert [lift.neighbour for lift in gained] == ["h", "g", "f", "e", "d"]


IDS = st.sampled_from("abcdefgh")
LINKS = st.lists(
    st.builds(Link, IDS, IDS, st.sampled_from(["supports", "contradicts", "x"]), st.floats(0, 1)), max_size=30
)
SEEDS = st.dictionaries(IDS, st.floats(0, 1), max_size=8).map(lambda d: sorted(d.items(), key=lambda s: (-s[1], s[0])))


@given(SEEDS, LINKS, st.randoms(use_true_random=False))
def test_the_order_of_links_does_not_matter(
    seeds: list[tuple[str, float]], links: list[Link], draw: random.Random
) -> None:
    shuffled = draw.sample(links, len(links))
    assert spread(seeds, links, ActivationOptions()) == spread(seeds, shuffled, ActivationOptions())
    assert lifts(dict(seeds), links, BoostOptions(1.0)) == lifts(dict(seeds), shuffled, BoostOptions(1.0))


@given(SEEDS, LINKS)
def test_nobody_gets_more_than_half_of_the_best_seed(seeds: list[tuple[str, float]], links: list[Link]) -> None:
    best = max((score for _, score in seeds), default=0)
    for activation in spread(seeds, links, ActivationOptions()).values():
        assert 0 < activation.amount <= best / 2


@given(SEEDS, LINKS, st.sampled_from([0.25, 2.0, 8.0]))
def test_scaling_the_scores_scales_what_is_passed_on(
    seeds: list[tuple[str, float]], links: list[Link], scale: float
) -> None:
    """Powers of two, so that nothing is rounded: who is activated, and in which order, stays the same."""
    before = spread(seeds, links, ActivationOptions())
    after = spread([(id, score * scale) for id, score in seeds], links, ActivationOptions())
    assert {id: way.amount * scale for id, way in before.items() if way.amount > 1e-300} == {
        id: way.amount for id, way in after.items() if way.amount > 1e-300 * scale
    }
