"""One search of the graph as one Cypher query: find what the query names, walk from there, keep the best way to each.

Every node found is a map {node, hit, way}. `hit` says whether it may be an answer, `way` is the best way to it:

    [-score, length, ['names', 'Ada', 'about', 'd1', ...], [1.0, 1.0, ...], last edge]

so that the least way is the best one: higher score first, then fewer steps, then the names on it. The score is the
start's coverage (the share of the name's words that the query holds) times the strengths of the edges.

What bounds the work, whatever the query and however large the graph:
- A name is looked for by the query's rarest words, as many as some MATCHES names hold; the rest only count as covered.
- Of those names, the CANDIDATES with the rarest words for their length are scored; the best STARTS are walked from.
- A hop goes on from BEAM nodes, over the FAN-OUT strongest edges of each, and only from nodes better than the worst
  answer so far, once there are enough answers. That loses nothing: a way gets no better by getting longer.
- A node with more than HUB edges is walked from only if the query names it: it connects everything with everything.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import orjson

from service.errors import TierInvalid
from service.model import Filter, Hit, Step
from service.stores.cypher import ANYTHING, filter_clause

STARTS = 10
"""Entities, and documents, that a walk starts from."""
MATCHES = 500
"""About how many names the words that names are looked for by may match; the rarest word may match more."""
CANDIDATES = 100
"""Names whose coverage is looked at."""
MIN_COVERAGE = 0.5
"""The share of a name's words that the query must hold for the name to be named."""
BEAM = 100
"""Nodes that a walk goes on from after each hop."""
HUB = 500
"""Edges above which a node is no connection."""

# The number of words is a part of the query's text: few different texts, so that the engine has their plans at hand.
_SLOTS = (4, 16, 64)

# One match tells how rare a word is: its score is log2 of one in how many names hold it.
_PEEK = """
  CALL db.idx.fulltext.queryNodes('{label}', $words[{slot}]) YIELD score
  RETURN $words[{slot}] AS word, score AS rarity LIMIT 1
"""
_START = """
CALL {{
  CALL {{{peeks}  }}
  WITH word, 2 ^ -rarity AS share ORDER BY share, word
  RETURN collect([word, share]) AS rarest
}}
WITH {carried}labels, reduce(chosen = ['', 0.0], rare IN rarest |
  CASE WHEN chosen[0] = '' OR (chosen[1] + rare[1]) * labels.{label} <= $matches
  THEN [chosen[0] + '|' + rare[0], chosen[1] + rare[1]] ELSE chosen END)[0] AS named
CALL {{
  WITH named
  CALL db.idx.fulltext.queryNodes('{label}', substring(named, 1)) YIELD node, score
  WITH node AS d, score{bound}
  WITH d, score / size(d.tokens) AS promise ORDER BY promise DESC, d.{key} LIMIT $candidates
  WITH d, 1.0 * size([w IN d.tokens WHERE w IN $words]) / size(d.tokens) AS score
  WHERE score >= $coverage
  WITH d, score ORDER BY score DESC, size(d.tokens) DESC, d.{key} LIMIT $starts
  RETURN collect({{node: d, hit: {hit}, way: [-score, 1, ['names', d.{name}], [score], -1]}}) AS {out}
}}
"""
_MERGE = """
CALL {
  WITH found, reached
  UNWIND found + reached AS one
  WITH one.node AS node, one.hit AS hit, min(one.way) AS way
  ORDER BY hit OR node.key IS NOT NULL DESC, way LIMIT $keep
  RETURN collect({node: node, hit: hit, way: way}) AS merged
}
WITH merged AS found, coalesce([one IN merged WHERE one.hit | -one.way[0]][$limit - 1], -1.0) AS bar
"""
# `-[r]-` and not `-[r:ABOUT|LINK]-`: there are no other types, and naming them takes twice as long.
_HOP = """
CALL {{
  WITH found, bar
  UNWIND [one IN found WHERE one.way[1] = {hop} AND -one.way[0] > bar][0..$beam] AS at
  WITH at.node AS n, at.way AS way, -at.way[0] AS score, at.way[4] AS last, bar{narrow}
  CALL {{
    WITH n, score, last, bar
    MATCH (n)-[r]-(d)
    WHERE {reach} AND score * r.strength > bar AND ID(r) <> last
    RETURN r, d{rank}
    ORDER BY {first}r.strength DESC, d.id, d.key, r.type LIMIT $fan_out
  }}
  WITH way, r, d{carry}, score * r.strength AS score ORDER BY {first}score DESC, d.id, d.key, way, r.type LIMIT $keep
  RETURN collect({{node: d, hit: {hit}, way: [-score, way[1] + 1,
                   way[2] + [r.type, coalesce(d.name, d.id)], way[3] + [r.strength], ID(r)]}}) AS reached
}}
WITH found, reached
"""
# One text and not a row a hit: the client takes ten times as long to read rows. toJSON does not escape.
_FINISH = r"""
UNWIND found + reached AS one
WITH one WHERE one.hit
WITH one.node.id AS id, min(one.way) AS way
ORDER BY way[0], way[1], id LIMIT $limit
RETURN toJSON(collect([-way[0], [text IN way[2] | replace(replace(text, '\\', '\\\\'), '"', '\\"')], way[3]]))
"""


def search_query(  # noqa: PLR0913 - a search has this many sides
    words: Sequence[str],
    namespaces: Sequence[str] | None,
    filter: Filter,
    limit: int,
    *,
    hops: int,
    fan_out: int,
) -> tuple[str, dict[str, Any]]:
    """The one query of a search and its parameters. Only parameter names go into the text."""
    wanted, filter_params = filter_clause(filter)
    place = "d.namespace IS NOT NULL" if namespaces is None else "d.namespace IN $namespaces"
    slots = _in_slots(words)
    text = [
        "CALL db.meta.stats() YIELD labels",
        _START.format(
            label="Entity", key="key", name="name", out="entities", carried="", bound="", hit="false",
            peeks=_peeks("Entity", len(slots)),
        ),
        "WITH labels, entities",
        _START.format(
            label="Document", key="id", name="id", out="documents", carried="entities, ",
            bound=f" WHERE {place}", hit=_hit_clause(wanted), peeks=_peeks("Document", len(slots)),
        ),
        "WITH entities + documents AS found, [] AS reached",
        *(part for hop in range(1, hops + 1) for part in (_MERGE, _hop(hop, place, wanted, last=hop == hops))),
        _FINISH,
    ]  # fmt: skip
    params = {
        "words": slots,
        "namespaces": list(namespaces or ()),
        "matches": MATCHES,
        "candidates": CANDIDATES,
        "coverage": MIN_COVERAGE,
        "starts": STARTS,
        "beam": BEAM,
        "keep": BEAM + limit,
        "hub": HUB,
        "fan_out": fan_out,
        "limit": limit,
    }
    return "\n".join(text), params | filter_params


def read_hits(rows: Sequence[Sequence[Any]]) -> list[Hit]:
    """What the query answered. A tenant without a graph answers no row at all."""
    try:
        return [_hit(*found) for row in rows for found in _loads(row[0])]
    except (TypeError, ValueError, LookupError) as error:
        raise TierInvalid(f"FalkorDB answered with what is no hit: {error}") from error


def _loads(text: str) -> list[Any]:
    """A text may hold a line break, which toJSON leaves as it is; few do, and orjson reads the others in a fifth."""
    try:
        loaded: list[Any] = orjson.loads(text)
    except orjson.JSONDecodeError:
        loaded = json.loads(text, strict=False)
    return loaded


def _hit(score: float, names: Sequence[str], strengths: Sequence[float]) -> Hit:
    if len(names) != 2 * len(strengths):
        raise ValueError("a walk of odd length")
    return Hit(names[-1], float(score), tuple(map(Step, names[0::2], names[1::2], map(float, strengths))))


def _in_slots(words: Sequence[str]) -> list[str]:
    """Each word once, and empty words, which match nothing, up to the next number of slots."""
    once = list(dict.fromkeys(words))[: _SLOTS[-1]]
    return once + [""] * (next(slots for slots in _SLOTS if slots >= len(once)) - len(once))


def _peeks(label: str, slots: int) -> str:
    return "  UNION ALL".join(_PEEK.format(label=label, slot=slot) for slot in range(slots))


def _hop(hop: int, place: str, wanted: str, *, last: bool) -> str:
    """One hop. Where edges must be cut, those to wanted documents stay; the last hop looks at nothing else."""
    narrow = " WHERE indegree(n) + outdegree(n) <= $hub" if hop > 1 else ""
    if last:
        reach = f"{place} AND {wanted}"
        return _HOP.format(hop=hop, narrow=narrow, reach=reach, hit="true", rank="", carry="", first="")
    rank, carry, first = "", "", ""
    if wanted != ANYTHING:
        rank = f", CASE WHEN d.key IS NOT NULL OR {wanted} THEN 0 ELSE 1 END AS rank"
        carry, first = ", rank", "rank, "
    reach = f"(d.key IS NOT NULL OR {place})"
    return _HOP.format(
        hop=hop, narrow=narrow, reach=reach, hit=_hit_clause(wanted), rank=rank, carry=carry, first=first
    )


def _hit_clause(wanted: str) -> str:
    """A filter on what a document does not have is null: neither true nor false, and in the way of sorting."""
    return f"coalesce(d.namespace IS NOT NULL AND {wanted}, false)"
