"""Clients that write, update and delete without pause, and remember what they were told.

Each has documents of its own, so it knows in what order they changed. After an answer it knows what a document is;
after none, or a 5xx, it may be what it was or what was asked for, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

import httpx

from tests.faults.crash.cluster import DIMENSION

GONE = 0


def title(revision: int) -> str:
    return f"Heron rev{revision}x"


class Client:
    """`known` are the revisions that a document may have now; GONE is one of them."""

    def __init__(self, number: int, url: str, key: str, seed: int, documents: int = 25) -> None:
        self._random = Random(f"{seed} {number}")
        self._http = httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=30)
        self.ids = [f"c{number}-{n}" for n in range(documents)]
        self.known: dict[str, set[int]] = {id: {GONE} for id in self.ids}
        self.told: Counter[str] = Counter()
        self._revision = 0
        self.stopped = False

    async def run(self) -> None:
        while not self.stopped:
            act = self._random.choices([self._put, self._put_many, self._delete], [5, 2, 3])[0]
            try:
                await act()
            except httpx.TransportError:
                self.told["no answer"] += 1
                await asyncio.sleep(0.05)
            await asyncio.sleep(self._random.uniform(0, 0.02))
        await self._http.aclose()

    async def _put(self) -> None:
        body, revision = self._document(self._random.choice(self.ids))
        id = body.pop("id")
        self.known[id].add(revision)
        answer = await self._http.put(f"/v1/documents/{id}", json=body)
        if self._acknowledged(answer):
            self.known[id] = {revision}

    async def _put_many(self) -> None:
        bodies = [self._document(id) for id in self._random.sample(self.ids, 8)]
        for body, revision in bodies:
            self.known[body["id"]].add(revision)
        answer = await self._http.post("/v1/documents", json=[body for body, _ in bodies])
        if self._acknowledged(answer):
            assert not answer.json()["errors"], answer.text
            self.known |= {body["id"]: {revision} for body, revision in bodies}

    async def _delete(self) -> None:
        id = self._random.choice(self.ids)
        self.known[id].add(GONE)
        answer = await self._http.delete(f"/v1/documents/{id}")
        if answer.status_code == 404 or self._acknowledged(answer):
            self.known[id] = {GONE}

    def _acknowledged(self, answer: httpx.Response) -> bool:
        self.told[str(answer.status_code)] += 1
        return answer.is_success

    def _document(self, id: str) -> tuple[dict[str, Any], int]:
        self._revision += 1
        vector = [self._random.uniform(-1, 1) for _ in range(DIMENSION)]
        links = [{"to": other} for other in self._random.sample(self.ids, 2) if other != id]
        text = {"title": title(self._revision), "content": "By the lake.", "entities": [f"Lake {self._revision % 5}"]}
        return {"id": id, **text, "metadata": {"rev": self._revision}, "vector": vector, "links": links}, self._revision
