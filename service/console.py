"""What the commands share: the terminal, the settings, and the ways to PostgreSQL and to a running Braid."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import httpx
import typer
from pydantic import ValidationError
from rich.console import Console

from service.embedded import Addresses, EmbeddedEngines, announced, check_platform, running
from service.errors import SetupError
from service.settings import Settings
from service.stores.postgres import Postgres

out = Console()
err = Console(stderr=True, soft_wrap=True)

Url = Annotated[
    str | None, typer.Option("--url", envvar="BRAID_URL", help="where Braid answers; default: on this data folder")
]
Key = Annotated[str | None, typer.Option("--key", envvar="BRAID_API_KEY", help="an API key; default: the sample's")]


def read_settings() -> Settings:
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "BRAID_" + "_".join(map(str, first["loc"])).upper()
        raise SetupError(f"{name} is not usable: {first['msg']}") from None


def log_at(level: str) -> None:
    logging.basicConfig(level=level.upper(), format="%(levelname)s %(name)s: %(message)s")
    for chatty in ("httpx", "httpcore", "asyncpg.pool"):  # the last logs tracebacks of what we say in a line
        logging.getLogger(chatty).setLevel("ERROR")


def url_of(host: str, port: int) -> str:
    """The address to type: one that stands for all of a machine's is no place to go to."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - not listened on here
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.contextmanager
def addresses_of(settings: Settings) -> Iterator[Addresses]:
    """PostgreSQL by its address, of the running instance, or started for this one command."""
    found = None if settings.postgres_url else running(settings.data_dir)
    if settings.postgres_url or found:
        yield found or Addresses(None, None)
        return
    check_platform()
    engines = EmbeddedEngines(settings.data_dir, postgres=True, falkordb=False)
    try:
        yield engines.start()
    finally:
        engines.stop()


async def prepared(settings: Settings, addresses: Addresses) -> list[str]:
    from service.app import postgres_urls, prepare  # noqa: PLC0415 - it takes long

    admin_url, url = postgres_urls(settings, addresses)
    if admin_url is None:
        raise SetupError("set BRAID_POSTGRES_ADMIN_URL to the address of the role that owns the tables")
    return await prepare(admin_url, url, embedded=settings.postgres_url is None)


@contextlib.asynccontextmanager
async def opened_postgres(settings: Settings) -> AsyncIterator[Postgres]:
    """As the service sees it, with the schema up to date where that is ours to do."""
    from service.app import postgres_urls  # noqa: PLC0415 - it takes long

    with addresses_of(settings) as addresses:
        admin_url, url = postgres_urls(settings, addresses)
        if admin_url is not None:
            await prepared(settings, addresses)
        postgres = Postgres(url, pool_size=2, acquire_timeout_s=5)
        await postgres.open()
        try:
            yield postgres
        finally:
            await postgres.close()


def address_of(settings: Settings) -> str:
    """Where the instance on our data folder answers, or would by these settings."""
    return announced(settings.data_dir) or url_of(settings.host, settings.port)


def client_of(url: str | None, key: str | None) -> httpx.Client:
    settings = read_settings()
    url = url or address_of(settings)
    if key is None:
        path = settings.data_dir / "sample.key"
        if not path.exists():
            raise SetupError("no API key: pass --key, or set BRAID_API_KEY (braid key create makes one)")
        key = path.read_text().strip()
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=120)


def checked(response: httpx.Response) -> Any:
    if response.is_success:
        return response.json()
    try:
        raise SetupError(f"{response.status_code}: {response.json()['detail']}")
    except (json.JSONDecodeError, KeyError, TypeError):
        raise SetupError(f"{response.status_code} from {response.url}: is that Braid?") from None
