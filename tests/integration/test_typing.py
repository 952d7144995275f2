"""What people type, over HTTP: every part of the language finds what it says, and no text brings the service down."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench import fuzz_typing
from tests.conftest import Running

KEYWORD = {"keyword": 1, "vector": 0, "graph": 0}
DOCUMENTS = [
    {
        "id": "pump",
        "title": "Pump P-204 runs hot",
        "content": "The temperature of the bearing rose during the night shift",
        "tags": ["urgent", "on call"],
    },
    {"id": "valve", "title": "Gate valve manual", "content": "Grease the bearing of the pump", "tags": ["manual"]},
    {
        "id": "gauge",
        "title": "Pressure gauge",
        "content": "urgent pump check at 12:30, see https://example.org/a-b?q=d or ask ada@example.org",
    },
    {
        "id": "code",
        "title": "My sister's C++ code",
        "content": "part 550e8400-e29b-41d4-a716-446655440000 of 北京 大学, with the --verbose flag, all night",
    },
]
PUMPS = {"pump", "valve", "gauge"}


@pytest.fixture(scope="module")
async def tenant(braid: Running) -> httpx.AsyncClient:
    client = await braid.tenant()
    written = (await client.post("/v1/documents?wait=true", json=DOCUMENTS)).json()
    assert not written["errors"], written
    return client


async def found(client: httpx.AsyncClient, query: str) -> list[str]:
    """What the keyword tier finds, best first."""
    response = await client.post("/v1/search", json={"query": query, "weights": KEYWORD, "timeout_ms": 5000})
    assert response.status_code == 200, response.text
    answer = response.json()
    assert answer["tiers"]["keyword"]["status"] in {"ok", "empty"}, answer["tiers"]
    return [result["id"] for result in answer["results"]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("grease gauge", {"valve", "gauge"}),
        ("grease OR gauge", {"valve", "gauge"}),
        ("pump AND bearing", {"pump", "valve"}),
        ("pump AND bearing AND grease", {"valve"}),
        ("grease AND gauge", set()),
        ("pump NOT bearing", {"gauge"}),
        ("pump AND NOT bearing", {"gauge"}),
        ("pump -bearing", {"gauge"}),
        ('pump -"night shift"', {"valve", "gauge"}),
        ("pump -tag:urgent", {"valve", "gauge"}),
        ("pump -gau*", {"pump", "valve"}),
        ("gauge OR pump AND bearing", {"gauge", "pump", "valve"}),
        ("(gauge OR valve) AND bearing", {"valve"}),
        ("pump NOT (gauge OR grease)", {"pump"}),
        ("pump OR NOT grease", {"pump", "gauge"}),
        ("grease OR gauge -pressure", {"valve"}),
    ],
)
async def test_operators(tenant: httpx.AsyncClient, query: str, expected: set[str]) -> None:
    assert set(await found(tenant, query)) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('"night shift"', {"pump"}),
        ("“night shift”", {"pump"}),
        ('"shift night"', set()),
        ('"gate valve" OR "pressure gauge"', {"valve", "gauge"}),
        ('"night shift" grease', {"pump"}),
        ('"night shift" "gate valve"', set()),
        ('what happened to "Pump P-204"', {"pump"}),
        ("temperat*", {"pump"}),
        ("be* AND gre*", {"valve"}),
        ("grea* gau*", {"valve", "gauge"}),
    ],
)
async def test_phrases_and_prefixes(tenant: httpx.AsyncClient, query: str, expected: set[str]) -> None:
    assert set(await found(tenant, query)) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("urgent", {"pump", "gauge"}),
        ("tag:urgent", {"pump"}),
        ("content:urgent", {"gauge"}),
        ("title:pump", {"pump"}),
        ("content:pump", {"valve", "gauge"}),
        ('title:"gate valve"', {"valve"}),
        ('content:"gate valve"', set()),
        ('tag:"on call"', {"pump"}),
        ("tag:urg*", {"pump"}),
        ("title:press*", {"gauge"}),
        ("title:pump gauge", {"pump"}),
        ("(title:gauge OR tag:manual) pump", {"gauge", "valve"}),
        ("title:gauge AND content:bearing", set()),
        ("tag:urgent (pump AND grease)", set()),
    ],
)
async def test_fields(tenant: httpx.AsyncClient, query: str, expected: set[str]) -> None:
    assert set(await found(tenant, query)) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("12:30", {"gauge"}),
        ("https://example.org/a-b?q=d", {"gauge"}),
        ("ada@example.org", {"gauge"}),
        ("550e8400-e29b-41d4-a716-446655440000", {"code"}),
        ("sister's", {"code"}),
        ("C++", {"code"}),
        ("北京", {"code"}),
        ("🦊 gauge 狐", {"gauge"}),
        ("-gauge", {"gauge"}),
        ("--verbose", {"code"}),
        ('-"gate valve"', {"valve"}),
        ("NOT grease", {"valve"}),
        ("grease AND", {"valve"}),
        ("AND", set()),
        ("title:", set()),
        ("' OR 1=1 --", set()),
        ('"unbalanced grease', {"valve"}),
        ("((grease & | ! <-> :* '", {"valve"}),
        ("grease\\", {"valve"}),
        ("\\'; DROP TABLE documents; --", set()),
    ],
)
async def test_everything_else_is_plain_text(tenant: httpx.AsyncClient, query: str, expected: set[str]) -> None:
    assert set(await found(tenant, query)) == expected


@pytest.mark.parametrize(
    "query",
    [
        "the pump",
        "pump AND the",
        "pump -the",
        "pump NOT the",
        '"the" pump',
        '"of the" AND pump',
        "title:the pump",
        "pump OR (the -bearing)",
    ],
)
async def test_a_word_that_says_nothing_changes_nothing(tenant: httpx.AsyncClient, query: str) -> None:
    assert set(await found(tenant, query)) == PUMPS


async def test_where_only_something_unwanted_is_left_nothing_is_found(tenant: httpx.AsyncClient) -> None:
    """And not everything else: no index can look for that."""
    assert await found(tenant, "the -bearing") == []


async def test_words_beside_a_filter_decide_the_order(tenant: httpx.AsyncClient) -> None:
    assert await found(tenant, "(content:pump OR title:pump) pressure") != await found(
        tenant, "(content:pump OR title:pump) grease"
    )
    assert (await found(tenant, "(content:pump OR title:pump) pressure"))[0] == "gauge"
    assert (await found(tenant, "(content:pump OR title:pump) grease"))[0] == "valve"


typing = st.text(max_size=200) | st.lists(
    st.sampled_from([*fuzz_typing.PIECES, *fuzz_typing.EXAMPLES]), max_size=12
).map("".join)


@given(query=typing)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
async def test_any_text_is_answered_or_refused(tenant: httpx.AsyncClient, query: str) -> None:
    """A search by words that fails would be a 200 with an invalid tier, so that counts as a failure too."""
    body = {"query": query, "weights": KEYWORD, "timeout_ms": 5000}
    response = await tenant.post("/v1/search", json=body)
    if "\x00" in query or not query.strip() or len(query.split()) > 64 or len(query) > 1024:
        assert response.status_code == 422
    else:
        assert response.status_code == 200, response.text
        assert response.json()["tiers"]["keyword"]["status"] in {"ok", "empty"}, (query, response.text)


@pytest.mark.parametrize("query", [r"pump \u0000", r"pump \ud800", r"\udfff AND pump", r"\"\ude00\ud83d\""])
async def test_nul_and_lone_surrogates_are_refused(tenant: httpx.AsyncClient, query: str) -> None:
    body = f'{{"query": "{query}"}}'
    response = await tenant.post("/v1/search", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 422, response.text
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("length", [660, 666, 667, 679, 680, 681, 682, 683, 1000])
async def test_words_as_long_as_postgresql_can_hold_are_no_trouble(tenant: httpx.AsyncClient, length: int) -> None:
    """It holds 2,046 bytes, which is 682 of these."""
    word = "狐" * length
    assert await found(tenant, word) == []
    assert await found(tenant, f'"{word}"') == []
    assert set(await found(tenant, f"pump -{word}")) == PUMPS


@pytest.mark.parametrize("unit", ['"', "(", "-(", "NOT ", '"a"', "title:", "a AND ", "🦊"])
async def test_64_kb_of_garbage_is_refused_and_1_kb_of_it_answered(tenant: httpx.AsyncClient, unit: str) -> None:
    refused = await tenant.post("/v1/search", json={"query": (unit * 65_536)[:65_536]})
    assert refused.status_code == 422, refused.text
    await found(tenant, " ".join((unit * 1024)[:1024].split()[:64]))
