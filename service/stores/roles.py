"""Who the service is in PostgreSQL: a role that row security binds, and that may not change the tables."""

from __future__ import annotations

from service.errors import SetupError
from service.stores.postgres import Postgres

SERVICE = "braid_service"

_WHO = """
SELECT r.rolname AS name, r.rolsuper AS superuser, r.rolbypassrls AS bypasses,
    EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'
            AND c.relrowsecurity AND pg_has_role(c.relowner, 'USAGE')) AS owns,
    pg_has_role('braid_service', 'USAGE') AS serves
FROM pg_roles r WHERE r.rolname = current_user
"""
_EXISTS = "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)"
_QUOTED = "SELECT quote_ident($1)"


async def admit(admin: Postgres, login: str, *, create: bool = False) -> None:
    """Lets a login role do what the service does; makes it where that is asked for."""
    async with admin.transaction() as connection:
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext('braid roles'))")
        role = await connection.fetchval(_QUOTED, login)
        if not await connection.fetchval(_EXISTS, login):
            if not create:
                raise SetupError(f"there is no role {login} in PostgreSQL: create it, with LOGIN and a password")
            await connection.execute(f"CREATE ROLE {role} LOGIN")
        if not await connection.fetchval("SELECT pg_has_role($1, $2, 'MEMBER')", login, SERVICE):
            await connection.execute(f"GRANT {SERVICE} TO {role}")


async def refuse_powerful(postgres: Postgres) -> None:
    """Row security does not bind superusers, owners and BYPASSRLS roles: a service that is one must not start."""
    who = await postgres.fetchrow(_WHO)
    powers = {"superuser": "a superuser", "bypasses": "BYPASSRLS", "owns": "the owner of the tables"}
    held = [words for power, words in powers.items() if who[power]]
    if held:
        raise SetupError(
            f"the role {who['name']} in BRAID_POSTGRES_URL is {' and '.join(held)}, so row security would not hold: "
            f"use a plain login role, and `braid migrate` with BRAID_POSTGRES_ADMIN_URL to admit it"
        )
    if not who["serves"]:
        raise SetupError(
            f"the role {who['name']} is not a member of {SERVICE}: run `braid migrate` with BRAID_POSTGRES_ADMIN_URL"
        )
