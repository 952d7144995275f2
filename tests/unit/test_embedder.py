"""Choosing an embedder: what each setting means, and what a wrong one is told."""

from __future__ import annotations

import sys

import pytest

from service.errors import SetupError, TierUnavailable
from service.stores.embedder import create_embedder


@pytest.mark.parametrize("spec", ["", "openai", "fastembed:", "http:localhost:80/v1", "wordllama:x", "None"])
async def test_an_unknown_embedder_is_told_the_valid_forms(spec: str) -> None:
    with pytest.raises(SetupError, match=r"wordllama \| fastembed:<model or folder> \| http:<url> \| none"):
        await create_embedder(spec)


async def test_none_needs_a_dimension_and_embeds_nothing() -> None:
    with pytest.raises(SetupError, match="BRAID_EMBEDDER_DIMENSION"):
        await create_embedder("none")
    embedder = await create_embedder("none", dimension=7)
    assert embedder.dimension == 7
    with pytest.raises(TierUnavailable, match="send `vector`"):
        await embedder.embed_query("x")
    with pytest.raises(TierUnavailable, match="send `vector`"):
        await embedder.embed_documents(["x"])


async def test_wordllama_knows_its_dimension_and_refuses_another() -> None:
    embedder = await create_embedder("wordllama", dimension=256)
    assert embedder.default_weights == {"keyword": 0.65, "vector": 0.25, "graph": 0.1}
    with pytest.raises(SetupError, match="is 384, but wordllama gives 256"):
        await create_embedder("wordllama", dimension=384)


async def test_fastembed_that_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastembed", None)
    with pytest.raises(SetupError, match=r"pip install 'braid-search\[fastembed\]'"):
        await create_embedder("fastembed:BAAI/bge-small-en-v1.5")


async def test_a_key_that_no_header_can_carry_is_refused_without_being_told() -> None:
    with pytest.raises(SetupError) as caught:
        await create_embedder("http://localhost:1/v1", api_key="sk-\nsecret")
    assert "secret" not in str(caught.value)
