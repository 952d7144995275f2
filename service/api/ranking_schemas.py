"""The part of a search that says how to rank: the same fields for one call and for defaults."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from service.api.fields import WHOLE, Strict, Unit
from service.ranking.fusion import FUSIONS

Weight = Annotated[float, Field(strict=True, ge=0, le=1000, allow_inf_nan=False)]
Bound = Annotated[float, Field(strict=True, ge=-1e6, le=1e6, allow_inf_nan=False)]
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

    confidence: Unit | None = Field(None, description="weight of a document's own confidence")


class RankingIn(Strict):
    """How to rank. What is absent is as the namespace, the tenant or the service has it."""

    profile: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        None, description="options under a name: exact, semantic, roaming, balanced, or your own", examples=["balanced"]
    )
    weights: Weights | None = None
    fusion: FusionIn | None = None
    shaping: ShapingIn | None = None

    def options(self) -> dict[str, Any]:
        """What was given, as a layer of `ranking/options.py`."""
        return self.model_dump(exclude_none=True, include=set(RankingIn.model_fields))
