"""create_app(settings) and its lifespan: the only module that builds things."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from fastapi import FastAPI
from pydantic import SecretStr, ValidationError
from starlette.middleware.cors import CORSMiddleware

from service import __version__, metrics
from service.admission import Gate
from service.api import (
    admin,
    batch,
    documents,
    edges,
    handlers,
    namespaces,
    openapi,
    ops,
    pages,
    search,
    stats,
    suggest,
)
from service.api.admission import AdmissionMiddleware
from service.api.deps import State
from service.api.limits import Limits
from service.api.middleware import RequestMiddleware
from service.api.ranking_schemas import RankingDefaults
from service.api.rates import Rates
from service.api.schemas import DocumentIn
from service.cursors import Cursors
from service.embedded import Addresses, EmbeddedEngines, check_platform
from service.errors import BraidError, InvalidInput, SetupError, outline
from service.indexing import Writer, keep_completing, keep_counting, keep_wording
from service.model import Reach
from service.recall import Recall
from service.removal import Removal
from service.sample import documents as sample_documents
from service.search import Searcher
from service.settings import Settings
from service.stores import dirty, roles
from service.stores.accesses import Accesses
from service.stores.backlog import Admission, Backlog
from service.stores.bell import Bell
from service.stores.cache import AnswerCache
from service.stores.completions import Completions
from service.stores.defaults import Defaults
from service.stores.documents import SINKS
from service.stores.embedder import NONE, Embedder, create_embedder
from service.stores.falkordb import GraphStore
from service.stores.keys import KeyDesk, Keys, NewKey
from service.stores.languages import Rewording, check_language
from service.stores.migrations import check_applied, migrate
from service.stores.postgres import Postgres
from service.stores.qdrant import VectorStore
from service.stores.reranker import Reranker, create_reranker
from service.stores.samples import Samples
from service.stores.spaces import Spaces
from service.stores.tenants import Tenants
from service.stores.words import BM25, WITHOUT_BM25, Corpora, Weighing, best_ranker
from service.tally import Tally
from service.tiers import Tier
from service.tiers.breaker import BreakerPolicy
from service.tiers.deadline import in_time
from service.tiers.graph import GraphTier
from service.tiers.guard import Guard, GuardPolicy
from service.tiers.keyword import KeywordTier
from service.tiers.vector import VectorTier
from service.tracing import Tracing
from service.verification import Verification
from service.worker import GraphSink, Sink, VectorSink, Worker

if TYPE_CHECKING:
    from service.stores.oidc import Tokens, Trust

log = logging.getLogger(__name__)

SAMPLE_TENANT = "sample"
EMBEDDED_ROLE = "braid_app"
_FLUSH_SECONDS = 30
_PING_SECONDS = 1
_SAMPLE_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Engines:
    """The stores, opened: what tests reach for when they break one."""

    postgres: Postgres
    vectors: VectorStore
    graph: GraphStore
    addresses: Addresses


def create_app(settings: Settings, *, renew_vectors: bool = False) -> FastAPI:
    """The whole application. Engines start and stop with its lifespan. With `renew_vectors`, an index that holds
    vectors of another model is emptied, and filled again."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            app.state.engines, app.state.braid = await _build(settings, stack, renew_vectors)
            yield

    app = FastAPI(
        title="Braid",
        version=__version__,
        summary="Hybrid search: keyword, vector and graph asked at once, fused into one ranking that explains itself.",
        lifespan=lifespan,
        generate_unique_id_function=lambda route: route.name,  # operation ids that clients can be generated from
        docs_url=None,  # ours asks no other host
        redoc_url=None,
    )
    for module in (search, batch, suggest, documents, edges, namespaces, admin, stats, ops, pages):
        app.include_router(module.router)
    handlers.install(app)
    limits = Limits.of(settings)
    openapi.describe(app, limits)
    if settings.cors_origins:
        _allow_pages_of(app, settings.cors_origins.split())
    gate = Gate(
        settings.search_concurrency, settings.search_queue_ms / 1000, settings.search_timeout_ms / 2000, time.monotonic
    )
    app.add_middleware(AdmissionMiddleware, gate=gate, most=settings.max_calls)
    app.add_middleware(RequestMiddleware, limits=limits, ops_port=settings.ops_port)
    return app


def _allow_pages_of(app: FastAPI, origins: list[str]) -> None:
    app.add_middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=["Authorization", "Content-Type", "X-Request-ID"],
        expose_headers=["X-Request-ID", "RateLimit", "RateLimit-Policy", "Retry-After"],
    )


async def _build(settings: Settings, stack: AsyncExitStack, renew_vectors: bool) -> tuple[Engines, State]:
    trust = _trust(settings)
    if settings.otlp_endpoint is not None:
        tracing = Tracing(settings.otlp_endpoint, queries=settings.trace_queries)
        tracing.start()
        stack.push_async_callback(tracing.stop)
    ranking = _ranking(settings)
    addresses = await _addresses(settings, stack)
    postgres = await _open_postgres(settings, addresses, stack)
    embedder = await _open_embedder(settings, stack)
    vectors = await _open_vectors(settings, embedder, stack, postgres if renew_vectors else None)
    graph = _open_graph(settings, settings.falkordb_url or addresses.falkordb_url or "", stack)
    await asyncio.gather(_say_if_down("Qdrant", vectors.ping), _say_if_down("FalkorDB", graph.ping))
    bell = await _start_workers(settings, postgres, [VectorSink(vectors, embedder), GraphSink(graph)], stack)
    weighing = await _weighing(settings, postgres)
    completions, every_s = Completions(postgres), settings.keyword_refresh_ms / 1000
    counting = [keep_counting(Corpora(postgres, weighing), every_s), keep_completing(completions, every_s)]
    counting.append(keep_wording(Rewording(postgres, weighing), every_s))
    await _run(counting, stack)
    ranker = await _ranker(postgres)
    tiers: list[Tier] = [
        KeywordTier(postgres, ranker, settings.keyword_candidates),
        VectorTier(vectors, embedder),
        GraphTier(graph, settings.graph_hops, settings.graph_fan_out),
    ]
    guards = _guards(tiers, settings)
    for guard in guards:
        stack.push_async_callback(guard.close)
    keys = Keys(postgres, key_pepper(settings), time.monotonic)
    accesses = Accesses(postgres)
    await _run([keys.keep_flushing(_FLUSH_SECONDS), accesses.keep_flushing(_FLUSH_SECONDS)], stack)
    tally = Tally(slow_ms=settings.slow_search_ms)
    samples = await _samples(Samples(postgres, tally, settings.stats_keep_hours), stack)
    backlog, tenants = Backlog(postgres), Tenants(postgres)
    admission = Admission(backlog, settings.index_backlog_max, clock=time.monotonic)
    writer = Writer(postgres, embedder.dimension, bell.ring, admission, weighing)
    verification = Verification(
        postgres, writer, {"vector": vectors, "graph": graph}, vectors_given=embedder.name == NONE
    )
    if settings.index_check_hours and settings.index_sinks:
        await _run([verification.keep_looking(tenants.ids, settings.index_check_hours * 3600)], stack)
    defaults = Defaults(postgres, ranking, time.monotonic)
    searcher = Searcher(
        postgres,
        guards,
        embedder.default_weights,
        settings.search_timeout_ms,
        tally,
        defaults,
        cursors=Cursors(key_pepper(settings)),
        reranker=await _reranker(settings, stack),
        skip_generic=settings.skip_generic,
    )
    _check_ranking(searcher, ranking)
    state = State(
        searcher=searcher,
        recall=_recall(settings, postgres, embedder),
        accesses=accesses,
        writer=writer,
        completions=completions,
        keys=keys,
        tokens=_tokens(trust, postgres, stack),
        tenants=tenants,
        spaces=Spaces(tenants, settings.keyword_language),
        key_desk=KeyDesk(tenants, keys),
        removal=Removal(postgres, vectors, graph, writer, settings.wait_timeout_ms / 1000),
        embedder=embedder.name,
        ranker=ranker,
        circuits=lambda: {guard.name: guard.circuit.value for guard in guards},
        probes={"postgres": postgres.ping, "qdrant": vectors.ping, "falkordb": graph.ping},
        backlog=lambda tenant: dirty.backlog(postgres, tenant),
        samples=samples,
        queue=backlog,
        verification=verification,
        rates=Rates(
            key=settings.rate_limit_key,
            tenant=settings.rate_limit_tenant,
            failures=settings.rate_limit_failures,
            window_s=settings.rate_limit_window_s,
            clock=time.monotonic_ns,
        ),
        search_timeout_max_ms=settings.search_timeout_max_ms,
        wait_timeout_ms=settings.wait_timeout_ms,
    )
    return Engines(postgres, vectors, graph, addresses), state


async def _start_workers(settings: Settings, postgres: Postgres, sinks: list[Sink], stack: AsyncExitStack) -> Bell:
    """Workers for those sinks that this process is to bring up to date, and what wakes them."""
    workers = [
        Worker(postgres, sink, batch=settings.index_batch, poll_s=settings.index_poll_ms / 1000)
        for sink in sinks
        if sink.name in settings.index_sinks.split()
        for _ in range(settings.index_workers)
    ]

    def wake() -> None:
        for worker in workers:
            worker.wake()

    bell = Bell(postgres, wake)
    await _run([bell.keep_ringing(), *([bell.keep_listening()] if workers else [])], stack)
    await _run([worker.run() for worker in workers], stack)
    return bell


@asynccontextmanager
async def working(settings: Settings) -> AsyncIterator[None]:
    """Only the workers of `index_sinks`, beside an API that runs elsewhere: every engine they need is a server."""
    async with AsyncExitStack() as stack:
        postgres = await _open_postgres(settings, Addresses(None, None), stack)
        sinks: list[Sink] = []
        if "vector" in settings.index_sinks:
            embedder = await _open_embedder(settings, stack)
            sinks.append(VectorSink(await _open_vectors(settings, embedder, stack), embedder))
        if "graph" in settings.index_sinks:
            sinks.append(GraphSink(_open_graph(settings, settings.falkordb_url or "", stack)))
        await _start_workers(settings, postgres, sinks, stack)
        yield


async def _keep_showing_pool(postgres: Postgres) -> None:
    """Every second, as each of several processes has a pool, and only one of them is asked for the metrics."""
    while True:
        used, idle, limit = postgres.use()
        metrics.POOL_CONNECTIONS.labels("used").set(used)
        metrics.POOL_CONNECTIONS.labels("idle").set(idle)
        metrics.POOL_LIMIT.set(limit)
        await asyncio.sleep(1)


async def _samples(samples: Samples, stack: AsyncExitStack) -> Samples:
    """Saved every few seconds, and what is left at the end."""

    async def flush() -> None:
        with contextlib.suppress(BraidError):
            await samples.flush()

    stack.push_async_callback(flush)
    await _run([samples.keep_flushing(_SAMPLE_SECONDS)], stack)
    return samples


async def _reranker(settings: Settings, stack: AsyncExitStack) -> Reranker | None:
    reranker = await create_reranker(
        settings.reranker, model=settings.reranker_model, api_key=_reveal(settings.reranker_api_key)
    )
    if reranker is not None:
        stack.push_async_callback(reranker.close)
        with contextlib.suppress(BraidError):  # loads a model before the first search pays for it
            await reranker.score("warm", ["warm"])
    return reranker


def _recall(settings: Settings, postgres: Postgres, embedder: Embedder) -> Recall:
    cache = (
        AnswerCache(settings.cache_bytes, settings.cache_ttl_s, time.monotonic) if settings.cache != "none" else None
    )
    bound = settings.cache_similarity if settings.cache == "semantic" else None
    return Recall(postgres, embedder, settings.search_timeout_ms, cache, bound)


async def _open_embedder(settings: Settings, stack: AsyncExitStack) -> Embedder:
    """Loaded before the first search pays for it. An embedder that is down only degrades the vector tier."""
    embedder = await create_embedder(
        settings.embedder,
        model=settings.embedder_model,
        api_key=_reveal(settings.embedder_api_key),
        dimension=settings.embedder_dimension,
    )
    stack.push_async_callback(embedder.close)
    with contextlib.suppress(BraidError):
        await embedder.embed_query("warm")
    return embedder


async def _open_vectors(
    settings: Settings, embedder: Embedder, stack: AsyncExitStack, renewing: Postgres | None = None
) -> VectorStore:
    """Everything is marked before the old vectors go: whatever dies in between, the index is filled in the end."""
    vectors = _vector_store(settings, embedder)
    stack.push_async_callback(vectors.close)
    try:
        await vectors.open()
    except SetupError:
        if renewing is None:
            raise
        await dirty.mark_all(renewing, "vector")
        await vectors.renew()
        await vectors.open()
    return vectors


def _open_graph(settings: Settings, url: str, stack: AsyncExitStack) -> GraphStore:
    password = _reveal(settings.falkordb_password)
    graph = GraphStore(url, password=password, timeout_ms=settings.search_timeout_max_ms)
    stack.push_async_callback(graph.close)
    return graph


async def _say_if_down(engine: str, ping: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """An engine that is not there is no reason not to start, but one to say so."""
    try:
        await in_time(ping(), _PING_SECONDS)
    except (BraidError, TimeoutError) as error:
        reason = str(error) or f"no answer in {_PING_SECONDS} s"
        log.warning("starting without %s (%s): searches miss its tier until it comes", engine, reason)


async def _addresses(settings: Settings, stack: AsyncExitStack) -> Addresses:
    """Starts what has no address of its own. The data folder is locked even where only Qdrant is embedded."""
    if settings.postgres_url and settings.falkordb_url and settings.qdrant_url:
        return Addresses(None, None)
    check_platform()
    engines = EmbeddedEngines(
        settings.data_dir, postgres=settings.postgres_url is None, falkordb=settings.falkordb_url is None
    )
    stack.push_async_callback(asyncio.to_thread, engines.stop)
    return await asyncio.to_thread(engines.start)


async def _open_postgres(settings: Settings, addresses: Addresses, stack: AsyncExitStack) -> Postgres:
    admin_url, url = postgres_urls(settings, addresses)
    if admin_url is not None:
        await prepare(admin_url, url, embedded=settings.postgres_url is None)
    postgres = Postgres(url, pool_size=settings.postgres_pool)
    stack.push_async_callback(postgres.close)
    await postgres.open()
    await _run([_keep_showing_pool(postgres)], stack)
    await check_applied(postgres)
    await roles.refuse_powerful(postgres)
    if settings.postgres_url is None:
        # The data folder is ours alone: claims left here are of a process that is dead.
        await dirty.release_all(postgres, SINKS)
    return postgres


def postgres_urls(settings: Settings, addresses: Addresses) -> tuple[str | None, str]:
    """The address of the role that owns the tables, where it is known, and that of the service's own role."""
    if settings.postgres_url is not None:
        return _reveal(settings.postgres_admin_url), settings.postgres_url.get_secret_value()
    owner = addresses.postgres_url or ""
    return owner, with_user(owner, EMBEDDED_ROLE)


async def prepare(admin_url: str, url: str, *, embedded: bool) -> list[str]:
    """Brings the schema up to date and admits the service's role. Returns the migrations it applied."""
    admin = Postgres(admin_url, pool_size=2, acquire_timeout_s=5)
    await admin.open()
    try:
        applied = await migrate(admin)
        await roles.admit(admin, urlsplit(url).username or "", create=embedded)
    finally:
        await admin.close()
    return applied


def with_user(url: str, user: str) -> str:
    """The same address for another role, without a password: only for a socket that trusts its folder."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{user}@{parts.netloc.rpartition('@')[2]}"))


def _vector_store(settings: Settings, embedder: Embedder) -> VectorStore:
    if settings.qdrant_url is None:
        from service.stores.qdrant_edge import EdgeVectorStore  # noqa: PLC0415 - has no wheel on some platforms

        return EdgeVectorStore(settings.data_dir / "qdrant", embedder.dimension, embedder.model)
    from service.stores.qdrant_server import ServerVectorStore  # noqa: PLC0415 - takes seconds to import

    return ServerVectorStore(
        settings.qdrant_url,
        _reveal(settings.qdrant_api_key),
        settings.qdrant_collection,
        embedder.dimension,
        settings.search_timeout_max_ms / 1000,
        embedder.model,
    )


def _guards(tiers: Sequence[Tier], settings: Settings) -> list[Guard]:
    """Each tier with its own share of the time, its own bound and its own breaker."""
    breaker = BreakerPolicy(
        calls=settings.breaker_calls,
        window_s=settings.breaker_window_s,
        failure_rate=settings.breaker_failure_rate,
        min_calls=settings.breaker_min_calls,
        open_s=settings.breaker_open_ms / 1000,
        probes=settings.breaker_probes,
        probe_s=settings.breaker_probe_ms / 1000,
    )
    shares = {"keyword": settings.keyword_share, "vector": settings.vector_share, "graph": settings.graph_share}
    return [
        Guard(
            tier,
            GuardPolicy(
                share=shares[tier.name],
                concurrency=settings.tier_concurrency,
                patience_ms=settings.search_timeout_ms * shares[tier.name] / 2,
                breaker=breaker,
            ),
        )
        for tier in tiers
    ]


async def _weighing(settings: Settings, postgres: Postgres) -> Weighing:
    await check_language(postgres, settings.keyword_language)
    return Weighing(
        settings.keyword_title_weight,
        settings.keyword_tag_weight,
        settings.bm25_k1,
        settings.bm25_b,
        settings.keyword_language,
    )


async def _ranker(postgres: Postgres) -> str:
    ranker = await best_ranker(postgres)
    if ranker != BM25:
        log.warning(WITHOUT_BM25)
    return ranker


async def _run(work: list[Coroutine[Any, Any, None]], stack: AsyncExitStack) -> None:
    """Runs these in the background until the application stops."""
    tasks = [asyncio.create_task(each) for each in work]
    for task in tasks:
        task.add_done_callback(_say_if_it_failed)

    async def stop() -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    stack.push_async_callback(stop)


def _say_if_it_failed(task: asyncio.Task[None]) -> None:
    """What runs for ever must not end unseen."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a background task ended: %s", outline(error))


def key_pepper(settings: Settings) -> bytes:
    """The secret behind all key digests: from the settings, or made once and kept beside embedded data."""
    given = _reveal(settings.key_pepper)
    if given:
        return given.encode()
    if settings.postgres_url is not None:
        raise SetupError(
            "set BRAID_KEY_PEPPER to a long random secret (openssl rand -hex 32), the same on every instance"
        )
    return kept_secret(settings.data_dir / "pepper", lambda: secrets.token_hex(32)).encode()


def _ranking(settings: Settings) -> dict[str, Any]:
    """The service's defaults for searches, checked before any engine starts."""
    if not settings.ranking:
        return {}
    try:
        return RankingDefaults.model_validate_json(settings.ranking).options()
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise SetupError(f"BRAID_RANKING: {where}{': ' if where else ''}{first['msg']}") from None


def _check_ranking(searcher: Searcher, ranking: dict[str, Any]) -> None:
    try:
        searcher.check_options(ranking)
    except InvalidInput as error:
        raise SetupError(f"BRAID_RANKING: {error}") from None


def _trust(settings: Settings) -> Trust | None:
    """Whose tokens are accepted, checked before any engine starts."""
    if settings.oidc_issuer is None:
        if settings.oidc_audience or settings.oidc_jwks_url:
            raise SetupError("BRAID_OIDC_AUDIENCE and BRAID_OIDC_JWKS_URL need BRAID_OIDC_ISSUER")
        return None
    from service.stores.oidc import Trust  # noqa: PLC0415 - takes 60 ms to import, and most have no issuer

    return Trust(
        issuer=settings.oidc_issuer,
        audience=settings.oidc_audience or "",
        jwks_url=settings.oidc_jwks_url,
        algorithms=tuple(settings.oidc_algorithms.replace(",", " ").split()),
        tenant_claim=settings.oidc_tenant_claim,
        scope_claim=settings.oidc_scope_claim,
        project_claim=settings.oidc_project_claim,
        namespaces_claim=settings.oidc_namespaces_claim,
        max_bytes=settings.oidc_max_token_bytes,
    )


def _tokens(trust: Trust | None, postgres: Postgres, stack: AsyncExitStack) -> Tokens | None:
    if trust is None:
        return None
    from service.stores.jwks import KeySet  # noqa: PLC0415 - as above
    from service.stores.oidc import Tokens  # noqa: PLC0415

    issued = KeySet(trust.issuer, trust.jwks_url, trust.algorithms, time.monotonic)
    stack.push_async_callback(issued.close)
    return Tokens(postgres, trust, issued, time.monotonic)


def kept_secret(path: Path, make: Callable[[], str]) -> str:
    """What the file holds; made on first use, readable by its owner only."""
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(make())
    return path.read_text().strip()


async def load_sample(state: State) -> str:
    """Writes the sample documents under a tenant of their own and returns a key for it."""
    reach = Reach(await state.tenants.ensure(SAMPLE_TENANT))
    read = [DocumentIn.model_validate(item) for item in sample_documents()]
    await state.writer.put(reach, [item.to_document(item.id or "") for item in read])
    await state.writer.settled(reach, [item.id or "" for item in read], 5000)  # an engine that is down may follow
    return await make_key(state.tenants, state.keys, SAMPLE_TENANT, NewKey())


async def make_key(tenants: Tenants, keys: Keys, tenant: str, wanted: NewKey) -> str:
    """A key for the tenant of this name, which is made where there is none."""
    await tenants.ensure(tenant)
    key, _ = await KeyDesk(tenants, keys).create("cli", tenant, wanted)
    return key


def _reveal(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
