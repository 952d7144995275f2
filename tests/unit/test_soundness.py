"""What an engine could make up, and that none of it passes."""

from __future__ import annotations

import math
from typing import Any

import pytest

from service.model import Hit, Step
from service.tiers.soundness import MOST_ID_CHARS, sound

GOOD = [Hit("a", 1.0), Hit("ü" * MOST_ID_CHARS, 0.0), Hit("c", -1.5, (Step("cites", "c", 1.0),))]


def test_hits_that_can_be_stay_as_they_are() -> None:
    assert sound(GOOD) == (tuple(GOOD), 0)
    assert sound([]) == ((), 0)


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, None, "0.7", 10**400, 1j])
def test_a_score_that_is_no_number_is_dropped_and_counted(score: Any) -> None:
    assert sound([Hit("bad", score), *GOOD, Hit("bad", score)]) == (tuple(GOOD), 2)


@pytest.mark.parametrize("id", ["", "x" * (MOST_ID_CHARS + 1), "nul\0", "lone \ud800", None, 7, b"bytes", ["list"]])
def test_an_id_that_no_document_has_is_dropped_and_counted(id: Any) -> None:
    assert sound([*GOOD, Hit(id, 0.5)]) == (tuple(GOOD), 1)


@pytest.mark.parametrize("step", [Step("\udfff", "a", 1.0), Step("cites", None, 1.0), None])  # type: ignore[arg-type]
def test_a_walk_that_cannot_be_written_as_json_is_dropped_and_counted(step: Any) -> None:
    assert sound([Hit("a", 0.5, (step,)), *GOOD]) == (tuple(GOOD), 1)
