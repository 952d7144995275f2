"""The `braid` command. Most of it only talks HTTP, so what takes long to import is imported where it is needed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn

import httpx
import orjson
import typer
import uvicorn
import uvloop
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from service import __version__, logs
from service.admin_cli import key_app, tenant_app
from service.console import (
    Key,
    Url,
    address_of,
    addresses_of,
    checked,
    client_of,
    err,
    out,
    prepared,
    read_settings,
    url_of,
)
from service.embedded import announce, running
from service.errors import BraidError, SetupError
from service.index_cli import rebuild, verify, worker
from service.settings import Settings
from service.ui.terminal import drawn, figures, plain
from service.workers import READY, inherited, serve_with

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
app.add_typer(key_app, name="key")
app.add_typer(tenant_app, name="tenant")
app.command(epilog="Example: BRAID_INDEX_SINKS=graph braid worker")(worker)
app.command(epilog="Example: braid rebuild --tier vector")(rebuild)
app.command(epilog="Example: braid verify --tenant my-team --repair")(verify)
_JSON = "-H 'Content-Type: application/json'"
_HELLO = '{"title": "Hello", "content": "My first document", "entities": ["Braid"]}'
_FIND_HELLO = '{"query": "hello Braid", "limit": 1, "explain": true}'
_COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
_BATCH_ITEMS = 500
_BATCH_BYTES = 4 * 1024 * 1024


def main() -> None:
    """Runs the command; what we foresaw going wrong is one line, not a traceback."""
    try:
        app()
    except BraidError as error:
        _fail(str(error))
    except httpx.ConnectError:
        _fail("nothing answers there: start Braid with `make serve` or `braid serve`, or pass --url")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        _fail(f"the request failed: {str(error) or type(error).__name__}")


def _fail(message: str) -> NoReturn:
    err.print(f"braid: {message}", style="red", markup=False, highlight=False)
    raise SystemExit(1)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="print the version")] = False) -> None:
    """Braid: keyword, vector and graph search at once, fused into one ranking that explains itself."""
    if version:
        out.print(__version__)
        raise typer.Exit


@app.command(epilog="Example: BRAID_PORT=9000 braid serve")
def serve(inherit: Annotated[str | None, typer.Option(hidden=True, help="sockets of a worker")] = None) -> None:
    """Start the API and every engine that has no address of its own. Ctrl-C stops them all."""
    settings = read_settings()
    logs.configure(settings.log_level, settings.log_format)
    if inherit is not None:
        line, listeners = inherited(inherit)
        _run(_serve(settings, listeners, line))
        return
    _check_workers(settings)
    ports = {"BRAID_PORT": settings.port, "BRAID_OPS_PORT": settings.ops_port}
    listeners = [_listen(settings.host, port, name) for name, port in ports.items() if port is not None]
    if settings.workers == 1:
        _run(_serve(settings, listeners))
    else:
        url = url_of(settings.host, listeners[0].getsockname()[1])
        serve_with(settings.workers, listeners, lambda: _welcome(url, None))


def _check_workers(settings: Settings) -> None:
    """An embedded engine belongs to one process."""
    if settings.workers > 1 and not (settings.postgres_url and settings.qdrant_url and settings.falkordb_url):
        raise SetupError(
            "BRAID_WORKERS needs servers, as an embedded engine belongs to one process: set BRAID_POSTGRES_URL, "
            "BRAID_QDRANT_URL and BRAID_FALKORDB_URL, or leave it at 1"
        )


def _run(serving: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serving)


def _listen(host: str, port: int, name: str) -> socket.socket:
    """Takes the port before anything else starts, so that a taken one costs nothing."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only where the protocol is named; with it an answer waits 40 ms for a receipt.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        remedy = f"set {name} to a free port" if taken else f"check BRAID_HOST and {name}"
        raise SetupError(f"cannot listen on {host}:{port} ({error.strerror}): {remedy}") from None
    return listener


class _Server(uvicorn.Server):
    """uvicorn re-raises the signal that stopped it, which would skip our own shutdown."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(settings: Settings, listeners: list[socket.socket], line: socket.socket | None = None) -> None:
    """With a `line`, as one of several processes: the parent speaks for all, and its end is ours."""
    from service.app import create_app  # noqa: PLC0415 - it takes long

    api = create_app(settings)
    config = uvicorn.Config(
        api, lifespan="off", log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=5
    )
    server = _Server(config)
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    if line is not None:
        asyncio.get_running_loop().add_reader(line, stopping.set)
    async with api.router.lifespan_context(api):
        key = None if line else await _sample_key(settings, api.state.braid)
        serving = asyncio.create_task(server.serve(sockets=listeners))
        while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn has no event for this
            await asyncio.sleep(0.01)
        if line is None:
            url = url_of(settings.host, listeners[0].getsockname()[1])
            announce(settings.data_dir, url)
            _welcome(url, key)
        else:
            line.send(READY)
        stopped = asyncio.create_task(stopping.wait())
        await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await serving
        if line is None:
            out.print("\nStopping the engines; your data stays.")


async def _sample_key(settings: Settings, state: Any) -> str | None:
    """The sample's key, loading the sample on the first start. Only where PostgreSQL is embedded."""
    if settings.postgres_url is not None or not settings.sample:
        return None
    path = settings.data_dir / "sample.key"
    if not path.exists():
        from service.app import kept_secret, load_sample  # noqa: PLC0415 - it takes long

        out.print("First start: loading the sample documents.")
        key = await load_sample(state)
        return await asyncio.to_thread(kept_secret, path, lambda: key)
    return await asyncio.to_thread(path.read_text)


def _welcome(url: str, key: str | None) -> None:
    # What stands behind # stays in the browser: the page takes the key from there and hides it.
    page = f"{url}/" if key is None else f"{url}/#key={key}"
    lines = [f"Braid {__version__} is up.", "", f"  page   {page}", f"  API    {url}/v1", f"  docs   {url}/docs"]
    if key is None:
        lines += ["", "  Make an API key with: braid key create --tenant my-team"]
    else:
        auth = f"-H 'Authorization: Bearer {key}'"
        lines += [
            f"  API key  {key}",
            "",
            "Open the page to search, or paste one of these into another terminal:",
            "",
            f"curl -s '{url}/v1/search?q=Halvorsen+dust&limit=3' {auth}",
            "",
            f"curl -s -X PUT '{url}/v1/documents/hello?wait=true' {auth} {_JSON} -d '{_HELLO}'",
            "",
            f"curl -s '{url}/v1/search' {auth} {_JSON} -d '{_FIND_HELLO}'",
        ]
    print("\n".join([*lines, "", "Ctrl-C stops it."]), flush=True)  # noqa: T201 - plain, so that it can be copied


@app.command(epilog="Example: BRAID_POSTGRES_ADMIN_URL=postgresql://... braid migrate")
def migrate() -> None:
    """Apply the migrations that the database does not have yet."""

    settings = read_settings()
    with addresses_of(settings) as addresses:
        done = asyncio.run(prepared(settings, addresses))
    out.print(f"Applied {', '.join(done)}." if done else "The database is up to date.")


@app.command(epilog="Example: braid load documents.jsonl --namespace wiki")
def load(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="one document or link a line")],
    url: Url = None,
    key: Key = None,
    namespace: Annotated[str | None, typer.Option(help="for documents that name none")] = None,
) -> None:
    """Load documents, and links ({"source", "target", ...}), from a JSONL file."""
    with file.open("rb") as lines:
        total = sum(1 for line in lines if line.strip())
    refused = 0
    with client_of(url, key) as client, Progress(*_COLUMNS, console=err) as progress:
        task = progress.add_task("Loading", total=total)
        for path, batch in _batches(file, namespace):
            answer = checked(client.post(path, json=batch))
            for item in (i for i in answer["items"] if i["status"] == "error"):
                refused += 1
                err.print(
                    plain(f"{item['id'] or '(no id)'}: {item['error']}"), style="red", markup=False, highlight=False
                )
            progress.advance(task, len(batch))
    out.print(f"Loaded {total - refused} of {total} lines.")
    if refused:
        raise typer.Exit(1)


def _batches(file: Path, namespace: str | None) -> Iterator[tuple[str, list[Any]]]:
    """The file's items in batches that the API takes, each with the path it is posted to."""
    batch: list[Any] = []
    target, size = "", 0
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            item = _item(line, number, namespace)
            path = "/v1/edges" if "source" in item and "target" in item else "/v1/documents"
            full = len(batch) == _BATCH_ITEMS or size + len(line) > _BATCH_BYTES
            if batch and (path != target or full):
                yield target, batch
                batch, size = [], 0
            target, size = path, size + len(line)
            batch.append(item)
    if batch:
        yield target, batch


def _item(line: bytes, number: int, namespace: str | None) -> dict[str, Any]:
    try:
        item = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise SetupError(f"line {number} is not valid JSON: {error}") from None
    if not isinstance(item, dict):
        raise SetupError(f"line {number} is not a JSON object")
    return item if namespace is None or "source" in item else {"namespace": namespace, **item}


@app.command(epilog='Example: braid search "who repaired the antenna" --limit 5 --debug')
def search(
    text: Annotated[str, typer.Argument(help="what to look for")],
    limit: Annotated[int, typer.Option(min=1, max=100)] = 10,
    namespace: Annotated[list[str] | None, typer.Option(help="search only here; may be repeated")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the answer as it came")] = False,
    debug: Annotated[bool, typer.Option(help="show every tier's numbers and the graph's paths")] = False,
    url: Url = None,
    key: Key = None,
) -> None:
    """Search, and see what each tier contributed."""
    body: dict[str, Any] = {"query": text, "limit": limit, "explain": debug}
    if namespace:
        body["include_namespaces"] = namespace
    with client_of(url, key) as client:
        answer = checked(client.post("/v1/search", json=body))
    if as_json:
        print(json.dumps(answer, indent=2, ensure_ascii=False))  # noqa: T201 - plain, for scripts
        return
    for shown in drawn(answer, debug=debug):
        out.print(shown, soft_wrap=isinstance(shown, Text))


@app.command("eval", epilog="Example: braid eval datasets/scifact --queries 100")
def evaluate(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="a collection with judgements, in BEIR layout")],
    url: Annotated[str | None, typer.Option(help="a Braid to measure; default: one started for this only")] = None,
    key: Annotated[
        str | None, typer.Option(envvar="BRAID_API_KEY", help="with --url: a key of an empty tenant")
    ] = None,
    split: Annotated[str, typer.Option(help="the judgements to use: qrels/SPLIT.tsv")] = "test",
    within: Annotated[
        str | None, typer.Option(help="a metadata field: search only where it is the query's own")
    ] = None,
    queries: Annotated[int | None, typer.Option(min=1, help="only so many queries, evenly spread")] = None,
    limit: Annotated[int, typer.Option(min=10, max=100, help="how deep a ranking is looked at, for recall")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="print all figures as JSON")] = False,
) -> None:
    """Measure how good the rankings are: each tier alone, fused, and fused without each tier."""
    from service.evaluation.collection import read_collection  # noqa: PLC0415 - it takes long
    from service.evaluation.run import measured  # noqa: PLC0415 - it takes long

    read = read_collection(folder, split=split, within=within, queries=queries)
    with _progress() as bar:
        report = measured(read, bar, limit=limit, url=url, key=key).body()
    if as_json:
        print(json.dumps(report, indent=2, ensure_ascii=False))  # noqa: T201 - plain, for scripts
        return
    for shown in figures(report):
        out.print(shown, soft_wrap=isinstance(shown, Text))


@app.command(epilog="Example: braid tune datasets/scifact")
def tune(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="a collection with judgements, in BEIR layout")],
    train: Annotated[
        str | None,
        typer.Option(help="learn from qrels/TRAIN.tsv; default: dev or train, else one half of test"),
    ] = None,
    within: Annotated[
        str | None, typer.Option(help="a metadata field: search only where it is the query's own")
    ] = None,
    vectors: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="embeddings made elsewhere, as .npz")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print all figures as JSON")] = False,
) -> None:
    """Learn which method, normaliser and weights suit a collection, and print settings to paste."""
    from service.evaluation.tune import tuned  # noqa: PLC0415 - it takes long

    with _progress() as bar:
        found = tuned(folder, bar, train=train, within=within, vectors=vectors).body()
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))  # noqa: T201 - plain, for scripts
        return
    for name in ("before", "after"):
        way = found[name]
        line = f"{name}: {way['way']}, nDCG@10 {way['train']:.3f} in training, {way['test']:.3f} on the rest"
        out.print(line, highlight=False, soft_wrap=True)
    counts = found["queries"]
    out.print(f"{found['tried']} ways on {counts['train']} queries; {counts['test']} others only reported", style="dim")
    out.print("For a search, a namespace, a tenant, or as BRAID_RANKING:")
    print(json.dumps(found["settings"]))  # noqa: T201 - plain, to be pasted


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, int], Callable[[int], None]]]:
    with Progress(*_COLUMNS, console=err, transient=True, disable=not err.is_terminal) as progress:

        def bar(label: str, total: int) -> Callable[[int], None]:
            task = progress.add_task(label, total=total)
            return lambda count: progress.advance(task, count)

        yield bar


@app.command(epilog="Example: braid doctor")
def doctor(url: Url = None) -> None:
    """Check the settings and each engine, and say what is wrong."""
    settings = read_settings()
    logs.configure("error")
    if url is None and running(settings.data_dir) is not None:
        url = address_of(settings)
    where = url or f"the engines, started on {settings.data_dir} for this check"
    out.print(f"Asking {where}.", markup=False, highlight=False, soft_wrap=True)
    engines, notes = asyncio.run(_ask(url) if url else _try_start(settings))
    found = {"settings": None} | engines
    for name, problem in found.items():
        verdict = Text("ok    ", "green") if problem is None else Text("wrong ", "red")
        out.print(verdict.append(f"{name}: {problem}" if problem else name, "default"), soft_wrap=True)
    for note in notes:
        out.print(Text("note  ", "yellow").append(note, "default"), soft_wrap=True)
    if any(found.values()):
        raise typer.Exit(1)


_Checked = tuple[dict[str, str | None], list[str]]


async def _ask(url: str) -> _Checked:
    """A running instance, which alone may open embedded Qdrant."""
    async with httpx.AsyncClient(base_url=url, timeout=5) as client:
        answer = await client.get("/readyz")
    return _engines(answer.json() if answer.status_code == 503 else checked(answer))


async def _try_start(settings: Settings) -> _Checked:
    from service.app import create_app  # noqa: PLC0415 - it takes long

    api = create_app(settings)
    try:
        async with api.router.lifespan_context(api):
            transport = httpx.ASGITransport(app=api)
            async with httpx.AsyncClient(transport=transport, base_url="http://doctor") as client:
                return _engines((await client.get("/readyz")).json())
    except BraidError as error:
        return {"start": str(error)}, []


def _engines(ready: dict[str, Any]) -> _Checked:
    """What is wrong with each engine, and what is not as good as it could be."""
    note = ready.get("keyword", {}).get("note")
    return {name: engine.get("reason") for name, engine in ready["engines"].items()}, [note] if note else []


if __name__ == "__main__":
    main()
