"""The languages of namespaces: which there are, and the words of a namespace whose language has changed."""

from __future__ import annotations

from service.errors import SetupError
from service.model import Reach
from service.stores.documents import INDEX_WORDS
from service.stores.postgres import Postgres
from service.stores.words import Weighing

_BATCH = 500

_KNOWN = "SELECT cfgname::text AS name FROM pg_ts_config WHERE pg_ts_config_is_visible(oid) ORDER BY 1"
_BEHIND = "SELECT DISTINCT tenant_id FROM namespaces WHERE worded_to IS NOT NULL ORDER BY 1 LIMIT $1"
# Not FOR UPDATE: a writer holds its documents and then asks for its namespace's key.
_NEXT = """
SELECT name, worded_to FROM namespaces WHERE tenant_id = $1 AND worded_to IS NOT NULL
ORDER BY name LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
"""
_SOME = """
SELECT id FROM documents WHERE tenant_id = $1 AND namespace = $2 AND id > $3 ORDER BY id LIMIT $4 FOR NO KEY UPDATE
"""
_CAME_TO = "UPDATE namespaces SET worded_to = $3 WHERE tenant_id = $1 AND name = $2"


async def check_language(postgres: Postgres, language: str) -> None:
    """Refuses to start with a language that PostgreSQL does not have."""
    known = [row["name"] for row in await postgres.fetch(_KNOWN)]
    if language not in known:
        raise SetupError(f"BRAID_KEYWORD_LANGUAGE: PostgreSQL has no {language!r}, but {', '.join(known)}")


class Rewording:
    """Indexes documents again whose namespace speaks another language now. Searches and writers go on meanwhile."""

    def __init__(self, postgres: Postgres, weighing: Weighing) -> None:
        self._postgres = postgres
        self._weighing = weighing

    async def behind(self, limit: int = 100) -> list[str]:
        """The tenants that have such namespaces."""
        async with self._postgres.service("worker") as connection:
            return [str(row["tenant_id"]) for row in await connection.fetch(_BEHIND, limit)]

    async def reword(self, tenant: str) -> None:
        while await self._reword_some(tenant):
            pass

    async def _reword_some(self, tenant: str) -> bool:
        """One batch, in a transaction of its own: whoever takes over goes on where it ended."""
        async with self._postgres.tenant(Reach(tenant), writes=True) as connection:
            place = await connection.fetchrow(_NEXT, tenant)
            if place is None:
                return False
            ids = [row["id"] for row in await connection.fetch(_SOME, tenant, *place, _BATCH)]
            if ids:
                await connection.execute(INDEX_WORDS, tenant, ids, *self._weighing.numbers)
            await connection.execute(_CAME_TO, tenant, place["name"], ids[-1] if ids else None)
            return True
