"""The part of a search that says how to rank: the same fields for one call and for defaults."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from service.api.fields import WHOLE, Name, Namespace, Strict, Truth, Unit
from service.ranking.fusion import FUSIONS

Weight = Annotated[float, Field(strict=True, ge=0, le=1000, allow_inf_nan=False)]
Factor = Annotated[float, Field(strict=True, ge=0, le=10, allow_inf_nan=False)]
Share = Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)]
Span = Annotated[float, Field(strict=True, gt=0, le=1e6, allow_inf_nan=False)]
Cycle = Annotated[int, Field(strict=True, ge=0, le=2**53), WHOLE]
Bound = Annotated[float, Field(strict=True, ge=-1e6, le=1e6, allow_inf_nan=False)]
Types = Annotated[list[Name], Field(min_length=1, max_length=64)]
GroupField = Annotated[str, Field(max_length=256, pattern=r"^(namespace|type|metadata\.[^\x00]+)$")]
Method = Literal["weighted", "rrf", "weighted_rrf", "scored_rrf", "combsum", "combmnz", "dbsf", "zscore", "l2"]
Normaliser = Literal["minmax", "theoretical", "fixed", "zscore", "dbsf", "l2", "none"]


class Weights(Strict):
    """How much each tier counts. 0 switches a tier off: it isn't asked."""

    keyword: Weight | None = None
    vector: Weight | None = None
    graph: Weight | None = None


class BoundsIn(Strict):
    """The lowest and the highest score of each tier, for the normalisers `theoretical` and `fixed`."""

    keyword: tuple[Bound, Bound] | None = None
    vector: tuple[Bound, Bound] | None = None
    graph: tuple[Bound, Bound] | None = None

    @model_validator(mode="after")
    def _rise(self) -> BoundsIn:
        for name, bounds in self:
            if bounds is not None and bounds[1] - bounds[0] < 1e-6:
                raise ValueError(f"the bounds of {name} must be the lowest score, then the highest")
        return self


class FusionIn(Strict):
    """How the tiers' answers become one ranking."""

    method: Method | None = None
    normaliser: Normaliser | None = Field(None, description="what makes scores comparable; default: the method's own")
    k: Annotated[int, Field(strict=True, ge=1, le=10_000), WHOLE] | None = Field(
        None, description="of the rank methods, 60 if absent: the higher, the less the first places stand out"
    )
    bounds: BoundsIn | None = None

    @model_validator(mode="after")
    def _fits(self) -> FusionIn:
        if self.method is not None and self.normaliser is not None and not FUSIONS[self.method].takes_normaliser:
            raise ValueError(f"the method {self.method} takes no normaliser: leave `normaliser` out")
        return self


class ShapingIn(Strict):
    """What may move a document after fusion. Weights go from 0, which is off, to 1."""

    question_fts_weight_scale: Factor | None = Field(None, description="keyword weight of a question, times this")
    question_vector_weight_scale: Factor | None = Field(None, description="vector weight of a question, times this")
    question_blend: Unit | None = Field(None, description="added to `blend` where the query is a question")
    blend: Unit | None = Field(None, description="how much the raw cosine counts beside the fused score")
    long_document_penalty: Truth | None = Field(None, description="whether a long text's cosine counts less there")
    keyword_only_damping: Unit | None = Field(None, description="the score of what only the keyword tier found, times")
    title_boost: Factor | None = Field(None, description="added for a title that has all words of the query")
    confidence: Unit | None = Field(None, description="weight of a document's own confidence")
    priority: Unit | None = Field(None, description="weight of a document's priority")
    recency: Unit | None = Field(None, description="weight of how new a document is")
    half_life_days: Span | None = None
    current_cycle: Cycle | None = Field(None, description="count age in cycles, from a document's metadata.cycle")
    half_life_cycles: Span | None = None
    access: Unit | None = Field(None, description="weight of how often a document was found before")
    type_boost: Annotated[dict[Name, Factor], Field(max_length=64)] | None = None
    affinity: Namespace | None = Field(None, description="the caller's own namespace: others count less")
    affinity_other: Unit | None = None


class GroupIn(Strict):
    """At most `limit` results that share a value."""

    field: GroupField
    limit: Annotated[int, Field(strict=True, ge=1, le=100), WHOLE] = 1


class RankingIn(Strict):
    """How to rank. What is absent is as the namespace, the tenant or the service has it."""

    profile: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        None, description="options under a name: exact, semantic, roaming, balanced, or your own", examples=["balanced"]
    )
    weights: Weights | None = None
    fusion: FusionIn | None = None
    shaping: ShapingIn | None = None
    include_types: Types | None = Field(None, description="only documents of these types")
    exclude_types: Types | None = Field(None, description="no documents of these types")
    type_cap: Annotated[dict[Name, Share], Field(max_length=64)] | None = Field(
        None, description="at most this share of the results, whatever the limit"
    )
    diversity: Unit | None = Field(None, description="0: by score only; 1: as unlike each other as can be")
    collapse: Unit | None = Field(None, description="leave out what is this much like a better result; 0 is off")
    group_by: GroupIn | None = None
    strict: Truth | None = Field(None, description="leave out results of LOW confidence")
    min_confidence: Unit | None = Field(None, description="leave out results below this absolute confidence")

    def options(self) -> dict[str, Any]:
        """What was given, as a layer of `ranking/options.py`."""
        return self.model_dump(exclude_none=True, include=set(RankingIn.model_fields))


class RankingDefaults(RankingIn):
    """Defaults for searches, and profiles of one's own."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"fusion": {"method": "rrf"}, "profiles": {"fresh": {"shaping": {"recency": 0.5}}}}]
        },
    )

    profiles: Annotated[dict[Name, RankingIn], Field(max_length=64)] | None = None

    def options(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)
