"""`python -m bench.fuzz_typing`: feeds the query language what nobody should type, and counts what it cannot take.

With `--url` and `--key` the texts also go through a running Braid, as searches by its keyword tier alone.
The inputs are drawn from a seed, so a complaint can be had again: `--seed` and `--inputs` as printed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

import httpx
import orjson
import typer

from service.ranking.typed import MAX_DEPTH, MAX_LEAVES, All, Any, Node, Not, Typed, depth, leaves, parse

EXAMPLES = """
fox bread
"night shift" pump
pump AND valve OR seal NOT broken
(pump OR "gate valve") AND tag:urgent -title:draft
bear* title:pum* content:"runs hot"
https://example.org/a-b?c=d&e=(f) see http://x
12:30 a:b title: title:title:x ada@example.org
550e8400-e29b-41d4-a716-446655440000 C++ sister's O'Brien rock-n-roll
-flag --verbose -"only this"
' OR 1=1 -- "; DROP TABLE documents; /* */
foo & bar | !baz <-> qux:* 'a' <2> \\ \\' :*A
🦊 fox 狐 北京大学 "東京 タワー" हिन्दी* é* e\u0301 ﬁne İ ß
"unbalanced (brackets [and {quotes
((((((((((deep)))))))))) AND NOT NOT -x
foo AND
NOT
""".strip().splitlines()
PIECES = [
    *"\"'()*-:&|!<>\\%_$;,.#@+~[]{}/?=^` \t\n\x0b\u00a0\u2028\u200b\ufeff",
    *("AND", "OR", "NOT", " AND ", " OR ", " NOT ", "and", "title:", "content:", "tag:", 'title:"', "-(", '-"', "--"),
    *(
        "a",
        "fox",
        "pump",
        "P-204",
        "the",
        "1",
        "12:30",
        "é",
        "ß",
        "İ",
        "狐",
        "🦊",
        "\u0301",
        "\U0010ffff",
        "“",
        "”",
        "„",
    ),
    *("<->", "<1>", ":*", ":A", ":*AB", "''", "\\'", "%s", "$1", "{}", "NULL", "\\u0000", "&&", "||", "!!", "@@"),
]

_KEYWORD_ONLY = {"keyword": 1, "vector": 0, "graph": 0}


def inputs(count: int, seed: int) -> Iterator[str]:
    """Texts of four kinds: random Unicode, pieces of syntax, examples bent out of shape, and one piece repeated."""
    dice = random.Random(seed)
    kinds: list[Callable[[random.Random], str]] = [_unicode, _pieces, _bent, _repeated]
    for _ in range(count):
        yield dice.choice(kinds)(dice)


def complaint(text: str) -> str | None:
    """Why the text was not read as it should be, if it was not."""
    try:
        typed = parse(text)
        orjson.dumps(typed.as_json())
    except Exception as error:  # noqa: BLE001 - any is one too many
        return f"{type(error).__name__}: {error}"
    return _broken_promise(typed)


def _broken_promise(typed: Typed) -> str | None:
    if depth(typed.tree) > MAX_DEPTH:
        return "too deep"
    if sum(1 for _ in leaves(typed.tree)) > MAX_LEAVES:
        return "too many leaves"
    return None if isinstance(typed.tree, Any) or _anchored(typed.tree) else "nothing wanted to look for"


def _anchored(node: Node) -> bool:
    """Whether every way to match it needs something that is there."""
    if isinstance(node, All):
        return any(map(_anchored, node.parts))
    return all(map(_anchored, node.parts)) if isinstance(node, Any) else not isinstance(node, Not)


def _unicode(dice: random.Random) -> str:
    ceiling = dice.choice([0x7F, 0x2FF, 0xD7FF, 0x10FFFF])
    drawn = (dice.randint(1, ceiling) for _ in range(dice.randint(0, 60)))
    return "".join(chr(point) for point in drawn if not 0xD800 <= point <= 0xDFFF)


def _pieces(dice: random.Random) -> str:
    return "".join(dice.choices(PIECES, k=dice.randint(0, 40)))


def _bent(dice: random.Random) -> str:
    text = dice.choice(EXAMPLES)
    for _ in range(dice.randint(1, 6)):
        start, end = sorted(dice.randint(0, len(text)) for _ in range(2))
        text = dice.choice(
            [text[:start] + text[end:], text[:start] + dice.choice(PIECES) + text[start:], text[start:] + text[:start]]
        )
    return text


def _repeated(dice: random.Random) -> str:
    unit = "".join(dice.choices(PIECES, k=dice.randint(1, 3)))
    return (unit * 1024)[: dice.randint(1, 1024)]


async def refusals(texts: Iterable[str], url: str, key: str, at_once: int = 8) -> list[tuple[str, str]]:
    """The texts that a running Braid failed on, each with its answer. A 422 that says why is no failure."""
    failed: list[tuple[str, str]] = []
    waiting = iter(texts)

    async def ask(client: httpx.AsyncClient) -> None:
        for text in waiting:
            reason = await _refusal(client, text)
            if reason:
                failed.append((reason, text))

    async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=30) as client:
        await asyncio.gather(*(ask(client) for _ in range(at_once)))
    return failed


async def _refusal(client: httpx.AsyncClient, text: str) -> str | None:
    try:
        response = await client.post("/v1/search", json={"query": text, "weights": _KEYWORD_ONLY, "limit": 1})
    except httpx.HTTPError as error:
        return f"{type(error).__name__}: {error}"
    if response.status_code == 200 and response.json()["tiers"]["keyword"]["status"] in {"ok", "empty"}:
        return None
    return None if response.status_code == 422 else response.text


def main(
    count: Annotated[int, typer.Option("--inputs", min=1, help="how many texts")] = 100_000,
    seed: Annotated[int, typer.Option(help="for everything that is drawn")] = 1,
    url: Annotated[str | None, typer.Option(help="a running Braid to search as well")] = None,
    key: Annotated[str, typer.Option(envvar="BRAID_API_KEY", help="a key of that Braid")] = "",
) -> None:
    """Read many strange texts and say how many could not be read. Fails if there is one."""
    failed = [(reason, text) for text in inputs(count, seed) if (reason := complaint(text))]
    if url:
        failed += asyncio.run(refusals(inputs(count, seed), url, key))
    for reason, text in failed:
        print(f"{reason}: {text!r}")
    print(f"{count:,} inputs, seed {seed}{', read and searched' if url else ''}: {len(failed):,} failures")
    raise typer.Exit(bool(failed))


if __name__ == "__main__":
    typer.run(main)
