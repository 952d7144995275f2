"""Questions: queries whose words are often not those of the answer, so that meaning should count for more."""

from __future__ import annotations

import re
from collections.abc import Mapping

from service.model import ShapingOptions

_ASKS = re.compile(
    r"\s*(?:who|whom|whose|what|when|where|why|which|how|is|are|was|were|do|does|did|can|could|should|would|will|has"
    r"|have|had)\b(?=\s+\S)",
    re.IGNORECASE,
)


def is_question(text: str) -> bool:
    """Whether it ends with a question mark, or begins as English questions do."""
    return text.rstrip().endswith(("?", "？")) or _ASKS.match(text) is not None


def question_weights(weights: Mapping[str, float], text: str, options: ShapingOptions) -> dict[str, float]:
    """The weights of a search; where it asks a question, keyword and vector times their scales."""
    scales = {"keyword": options.question_fts_weight_scale, "vector": options.question_vector_weight_scale}
    if not is_question(text):
        return dict(weights)
    return {tier: weight * scales.get(tier, 1.0) for tier, weight in weights.items()}
