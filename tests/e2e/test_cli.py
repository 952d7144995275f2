"""The `braid` command as people use it: a data folder of its own, real processes to serve, a real curl.

Commands that only ask run in this process: each start of Python would cost a second.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock
from unittest.mock import ANY

import pytest

from service.cli import main

BRAID = Path(sys.executable).with_name("braid")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("BRAID_")} | {"COLUMNS": "120"}
START_SECONDS = 30
STOP_SECONDS = 10


@dataclass(frozen=True)
class Done:
    """A command's end."""

    returncode: int
    stdout: str
    stderr: str


@dataclass
class Place:
    """A data folder, and the environment that points the command at it."""

    data: Path
    port: int

    @property
    def environment(self) -> dict[str, str]:
        return CLEAN | {"BRAID_DATA_DIR": str(self.data), "BRAID_PORT": str(self.port)}

    def braid(self, *arguments: str | Path, **environment: str) -> Done:
        said, complained = io.StringIO(), io.StringIO()
        argv = ["braid", *map(str, arguments)]
        with (
            mock.patch.dict(os.environ, self.environment | environment, clear=True),
            mock.patch.object(sys, "argv", argv),
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(complained),
            pytest.raises(SystemExit) as ended,
        ):
            main()
        return Done(int(ended.value.code or 0), said.getvalue(), complained.getvalue())

    def serve(self, **environment: str) -> Done:
        """`braid serve` where it is expected to fail."""
        done = subprocess.run(
            [BRAID, "serve"],
            env=self.environment | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def without_port(self, *arguments: str | Path) -> Done:
        """As in a terminal that knows the data folder only; the port is found out."""
        return self.braid(*arguments, BRAID_PORT="8080")


class Served:
    """`braid serve`, up, and what it printed."""

    def __init__(self, place: Place) -> None:
        self.place = place
        began = time.monotonic()
        self._output = place.data.parent / "output"
        with self._output.open("w") as sink:
            self.process = subprocess.Popen([BRAID, "serve"], env=place.environment, stdout=sink, stderr=sink)
        while "Ctrl-C stops it." not in self.said():
            assert self.process.poll() is None, self.said()
            assert time.monotonic() - began < START_SECONDS, self.said()
            time.sleep(0.02)
        self.took = time.monotonic() - began

    def said(self) -> str:
        return self._output.read_text()

    @property
    def key(self) -> str:
        return re.findall(r"API key  (braid_\S+)", self.said())[0]

    @property
    def curls(self) -> list[str]:
        return [line for line in self.said().splitlines() if line.startswith("curl ")]

    def stop(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(STOP_SECONDS)


@pytest.fixture
def place() -> Iterator[Place]:
    yield from new_place()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """One instance for the tests that only talk to it."""
    for place in new_place():
        instance = Served(place)
        yield instance
        instance.stop(signal.SIGTERM)


def new_place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="bt-", dir="/tmp") as folder:
        place = Place(Path(folder) / "d", free_port())
        yield place
        for pid in living(place.data):
            os.kill(pid, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def living(data: Path) -> list[int]:
    """Processes that name the data folder or work in it, as PostgreSQL's children do."""
    listed = subprocess.run(["ps", "-axww", "-o", "pid=,command="], capture_output=True, text=True, check=True).stdout
    found = [line.split(maxsplit=1) for line in listed.splitlines()]
    return [int(pid) for pid, command in found if f"{data}/" in command or works_in(pid, data)]


def works_in(pid: str, data: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink().is_relative_to(data)
    except OSError:
        return False


def eventually(check: Callable[[], bool], seconds: float = STOP_SECONDS) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not check():
        time.sleep(0.05)
    return check()


def refusal(done: Done) -> str:
    """The one line that a foreseen failure is."""
    assert done.returncode == 1, done.stdout + done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("braid: ")
    return lines[0]


def jsonl(place: Place, *items: object) -> Path:
    path = place.data.parent / "items.jsonl"
    path.write_text("\n".join(item if isinstance(item, str) else json.dumps(item) for item in items))
    return path


def found(place: Place, query: str) -> list[dict[str, Any]]:
    done = place.without_port("search", query, "--json", "--limit", "100")
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)["results"])


# serve


def test_serve_prints_where_everything_is(served: Served) -> None:
    url = f"http://127.0.0.1:{served.place.port}"
    said = served.said()
    for line in (f"API    {url}/v1", f"docs   {url}/docs", f"page   {url}/"):
        assert line in said
    assert len(served.curls) == 3
    assert "Traceback" not in said


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_printed_curl_lines_work_as_they_are(served: Served) -> None:
    first, second, third = (
        json.loads(subprocess.run(shlex.split(line), capture_output=True, check=True, timeout=30).stdout)
        for line in served.curls
    )
    assert first["degraded"] is False
    assert [set(result["tiers"]) for result in first["results"]] == [{"keyword", "vector", "graph"}] * 3
    assert second == {"id": "hello", "status": "created", "version": ANY, "visible": True}
    assert [result["id"] for result in third["results"]] == ["hello"]
    assert set(third["results"][0]["tiers"]) == {"keyword", "vector", "graph"}


def test_a_taken_port_is_said_in_one_line(served: Served, place: Place) -> None:
    said = refusal(place.serve(BRAID_PORT=str(served.place.port)))
    assert f"cannot listen on 127.0.0.1:{served.place.port}" in said
    assert "set BRAID_PORT to a free port" in said
    assert not place.data.exists()


def test_a_second_instance_on_the_same_data_is_said_in_one_line(served: Served) -> None:
    said = refusal(served.place.serve(BRAID_PORT="0"))
    assert f"another Braid (pid {served.process.pid}) is already running on {served.place.data}" in said
    assert "set BRAID_DATA_DIR to another folder" in said
    assert found(served.place, "Halvorsen")


def test_an_interrupt_stops_every_engine_and_the_next_start_is_warm_with_the_data(place: Place) -> None:
    first = Served(place)
    place.braid("load", jsonl(place, {"id": "kept", "title": "Quokka"}))
    assert first.stop(signal.SIGINT) == 0
    assert living(place.data) == []
    assert "Traceback" not in first.said()

    second = Served(place)
    print(f"first start {first.took:.1f} s, second {second.took:.1f} s")
    assert second.took < 15  # 5 s by design, on a machine that does nothing else
    assert second.key == first.key
    assert "First start" not in second.said()
    assert "kept" in [result["id"] for result in found(place, "Quokka")]
    assert second.stop(signal.SIGTERM) == 0
    assert living(place.data) == []


def test_a_killed_braid_takes_its_engines_along_and_loses_nothing(place: Place) -> None:
    first = Served(place)
    written = place.braid("load", jsonl(place, {"id": "kept", "title": "Quokka", "entities": ["Rottnest"]}))
    assert written.returncode == 0
    first.stop(signal.SIGKILL)
    assert eventually(lambda: living(place.data) == [])

    second = Served(place)
    assert second.key == first.key
    assert eventually(lambda: set(found(place, "Quokka Rottnest")[0]["tiers"]) == {"keyword", "vector", "graph"})
    second.stop(signal.SIGTERM)
    assert living(place.data) == []


# search


def test_search_draws_a_bar_a_tier_and_says_what_became_of_each(served: Served) -> None:
    done = served.place.without_port("search", "Halvorsen dust", "--limit", "2")
    assert done.returncode == 0, done.stderr
    heading, first, second, *tiers = done.stdout.splitlines()
    assert heading.split() == ["score", "contributions", "namespace", "id", "title"]
    assert re.search(r"^1\.000 +█+▓+░+ +notes +notes-comet-name +Why it is called Halvorsen", first)
    assert re.search("█+▓+░+", second)
    assert [re.sub(r"\d+", "n", line) for line in tiers] == [
        f"{shade} {name}: ok, n hits, n.n ms" for shade, name in zip("█▓░", ("keyword", "vector", "graph"), strict=True)
    ]


def test_search_as_json_is_the_answer_as_it_came(served: Served) -> None:
    done = served.place.without_port("search", "E-4471", "--json", "--namespace", "incidents")
    answer = json.loads(done.stdout)
    assert answer["results"][0]["id"] == "inc-e4471"
    assert answer["namespaces"] == ["incidents"]


def test_search_with_debug_shows_numbers_and_paths(served: Served) -> None:
    said = served.place.without_port("search", "Siskin", "--debug").stdout
    assert re.search(r"keyword #1: raw \d\.\d+, normalised 1\.000 \(\w+\), weight 0\.65, gives 0\.650", said)
    assert "-names-> Siskin -about-> notes-wheel-bearing" in said


def test_what_documents_hold_gives_the_terminal_no_orders(served: Served) -> None:
    odd = {"id": "odd[/red]", "title": "Wombat \x1b[2J [bold]loud[/bold] \x07", "namespace": "odd"}
    assert served.place.without_port("load", jsonl(served.place, odd)).returncode == 0
    said = served.place.without_port("search", "wombat", "--namespace", "odd").stdout
    assert "odd[/red]" in said
    assert "[bold]loud[/bold]" in said
    assert "\x1b" not in said
    assert "\x07" not in said


def test_search_where_nothing_answers_says_how_to_start(place: Place) -> None:
    said = refusal(place.braid("search", "x", "--key", "k"))
    assert "braid serve" in said
    assert "no API key: pass --key" in refusal(place.braid("search", "x"))


def test_search_with_an_unknown_key_says_so(served: Served) -> None:
    assert "401: this API key is not known" in refusal(served.place.without_port("search", "x", "--key", "braid_a.b"))


# load


def test_load_takes_documents_and_links_and_counts_them(served: Served) -> None:
    file = jsonl(
        served.place,
        {"id": "load-a", "title": "Numbat", "entities": ["Dryandra"]},
        "",
        {"id": "load-b", "title": "Bilby", "namespace": "kept"},
        {"source": "load-a", "target": "load-b", "type": "meets", "strength": 0.9},
    )
    done = served.place.without_port("load", file, "--namespace", "animals")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Loaded 3 of 3 lines.\n"
    assert "3/3" in done.stderr  # the progress bar
    assert found(served.place, "Numbat")[0]["namespace"] == "animals"
    assert found(served.place, "Bilby")[0]["namespace"] == "kept"

    def walked() -> bool:
        return any(hit["id"] == "load-b" and "graph" in hit["tiers"] for hit in found(served.place, "Dryandra"))

    assert eventually(walked)


def test_load_names_refused_items_and_loads_the_others(served: Served) -> None:
    file = jsonl(
        served.place, {"id": "good", "title": "Dunnart"}, {"id": "bad", "priority": 9}, {"source": "x", "target": ""}
    )
    done = served.place.without_port("load", file)
    assert done.returncode == 1
    assert done.stdout == "Loaded 1 of 3 lines.\n"
    assert re.search(r"^bad: priority: .*4", done.stderr, re.MULTILINE)
    assert re.search(r"target: ", done.stderr)
    assert "good" in [result["id"] for result in found(served.place, "Dunnart")]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"id": "half"', "line 2 is not valid JSON"),
        ('{"id": "n", "metadata": {"x": NaN}}', "line 2 is not valid JSON"),
        ("[1, 2]", "line 2 is not a JSON object"),
    ],
)
def test_load_names_the_line_that_it_cannot_read(served: Served, line: str, complaint: str) -> None:
    done = served.place.without_port("load", jsonl(served.place, {"id": "before"}, line))
    assert done.returncode == 1
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_load_of_a_file_that_is_not_text_is_refused(served: Served) -> None:
    file = jsonl(served.place)
    file.write_bytes(b'{"id": "\xff\xfe"}\n')
    done = served.place.without_port("load", file)
    assert done.returncode == 1
    assert "line 1 is not valid JSON" in done.stderr


def test_load_sends_large_documents_in_several_requests(served: Served) -> None:
    """A hundred documents of 200 KB are more than one request may carry."""
    large = [{"id": f"big-{n}", "content": "x " * 100_000, "namespace": "big"} for n in range(100)]
    done = served.place.without_port("load", jsonl(served.place, *large))
    assert done.stdout == "Loaded 100 of 100 lines.\n", done.stderr


# key, migrate, doctor


def test_a_created_key_works_within_its_scope(served: Served) -> None:
    made = served.place.without_port("key", "create", "--tenant", "team", "--scope", "search")
    key = made.stdout.strip()
    assert re.fullmatch(r"braid_\w+\.\S+", key)
    assert json.loads(served.place.without_port("search", "x", "--json", "--key", key).stdout)["results"] == []
    refused = served.place.without_port("load", jsonl(served.place, {"id": "a"}), "--key", key)
    assert refused.returncode == 1
    assert "scope `write`" in refused.stderr
    assert "there are search, write" in refusal(served.place.braid("key", "create", "--tenant", "t", "--scope", "all"))


def test_migrate_and_keys_work_without_a_running_instance(place: Place) -> None:
    assert re.fullmatch(r"Applied 0001_\S+.*\.\n", place.braid("migrate").stdout, re.DOTALL)
    assert place.braid("migrate").stdout == "The database is up to date.\n"
    assert place.braid("key", "create", "--tenant", "team").stdout.startswith("braid_")
    assert living(place.data) == []


def test_keys_are_listed_narrowed_and_revoked(served: Served) -> None:
    place = served.place
    for owner in (["--tenant", "rotating"], ["--admin"]):
        key = place.without_port("key", "create", *owner, "--name", "ci", "--days", "7").stdout.strip()
        prefix = key.removeprefix("braid_").partition(".")[0]
        listed = place.without_port("key", "list", *owner).stdout
        assert re.search(rf"^{prefix} +ci ", listed, re.MULTILINE)
        assert key.partition(".")[2] not in listed
        assert place.without_port("key", "revoke", prefix, *owner).stdout == "Revoked.\n"
        assert "no live key" in refusal(place.without_port("key", "revoke", prefix, *owner))
    for options in ([], ["--tenant", "t", "--admin"]):
        assert "say whose key" in refusal(place.without_port("key", "create", *options))
    assert "leave these options out" in refusal(place.without_port("key", "create", "--admin", "--scope", "search"))
    assert "no project" in refusal(place.without_port("key", "create", "--tenant", "rotating", "--project", "none"))


def test_a_tenant_from_its_making_to_its_end(served: Served) -> None:
    place = served.place
    made = place.without_port("tenant", "create", "brief", "--max-documents", "10")
    assert re.fullmatch(r"[0-9a-f-]{36}\n", made.stdout)
    assert "already" in refusal(place.without_port("tenant", "create", "brief"))
    assert re.search(r"brief\s+active\s+10", place.without_port("tenant", "list").stdout)
    key = place.without_port("key", "create", "--tenant", "brief").stdout.strip()
    assert place.without_port("load", jsonl(place, {"id": "a", "title": "brief"}), "--key", key).returncode == 0
    assert place.without_port("tenant", "suspend", "brief").stdout == "Suspended.\n"
    assert eventually(lambda: "suspended" in place.without_port("search", "brief", "--key", key).stderr, 8)
    assert place.without_port("tenant", "resume", "brief").stdout == "Resumed.\n"
    assert place.without_port("search", "brief", "--key", key).returncode == 0
    assert "no admin key" in refusal(place.without_port("tenant", "delete", "brief", "--yes"))
    admin = place.without_port("key", "create", "--admin", "--name", "end").stdout.strip()
    gone = place.without_port("tenant", "delete", "brief", "--yes", "--key", admin)
    said = gone.stdout.splitlines()
    assert [line.partition(":")[0] for line in said] == ["qdrant", "falkordb", "postgres"], gone.stderr
    assert all(line.endswith("; 0 remain") for line in said)
    assert "1 documents" in said[2]
    assert "404" in refusal(place.without_port("tenant", "delete", "brief", "--yes", "--key", admin))


def test_doctor_asks_the_running_instance_wherever_it_listens(served: Served) -> None:
    done = served.place.without_port("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        f"Asking http://127.0.0.1:{served.place.port}.",
        "ok    settings",
        "ok    postgres",
        "ok    qdrant",
        "ok    falkordb",
    ]


def test_doctor_starts_the_engines_where_nothing_runs_and_names_what_is_down(place: Place) -> None:
    done = place.braid("doctor", BRAID_FALKORDB_URL="redis://127.0.0.1:1")
    assert done.returncode == 1
    assert "ok    postgres" in done.stdout
    assert "ok    qdrant" in done.stdout
    assert re.search(r"^wrong falkordb: \S+", done.stdout, re.MULTILINE)
    assert done.stderr == ""
    assert living(place.data) == []


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("BRAID_PORT", "http", "BRAID_PORT is not usable: "),
        ("BRAID_FALKORDB_URL", "localhost:6379", "BRAID_FALKORDB_URL is not usable: "),
        ("BRAID_EMBEDDER", "bert", "'bert' is no embedder; use one of: wordllama"),
        ("BRAID_POSTGRES_URL", "postgresql://u:s3cret@127.0.0.1:1/x", "check BRAID_POSTGRES_URL"),
        ("BRAID_POSTGRES_URL", "postgresql://u:p@s3cret@127.0.0.1:x/x", "cannot read BRAID_POSTGRES_URL"),
        ("BRAID_DATA_DIR", "/dev/null/d", "set BRAID_DATA_DIR to another folder"),
    ],
)
def test_doctor_names_a_broken_setting(place: Place, setting: str, value: str, said: str) -> None:
    done = place.braid("doctor", BRAID_KEY_PEPPER="pepper", **{setting: value})
    assert done.returncode == 1
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "s3cret" not in done.stdout + done.stderr


def test_serve_says_what_is_wrong_in_one_line(place: Place) -> None:
    said = refusal(place.serve(BRAID_POSTGRES_URL="postgresql://u:s3cret@127.0.0.1:1/x", BRAID_KEY_PEPPER="pepper"))
    assert said.endswith("check BRAID_POSTGRES_URL")


# help


@pytest.mark.parametrize(
    "command",
    [
        ["serve"],
        ["migrate"],
        ["load"],
        ["search"],
        ["key", "create"],
        ["key", "list"],
        ["key", "revoke"],
        ["tenant", "list"],
        ["tenant", "create"],
        ["tenant", "suspend"],
        ["tenant", "resume"],
        ["tenant", "delete"],
        ["doctor"],
    ],
    ids=" ".join,
)
def test_every_command_has_an_example_in_its_help(place: Place, command: list[str]) -> None:
    done = place.braid(*command, "--help")
    assert done.returncode == 0
    assert re.search(rf"Example: .*braid {' '.join(command)}", done.stdout)
    assert " ".join(command[:1]) in place.braid("--help").stdout


def test_the_version_is_printed(place: Place) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", place.braid("--version").stdout)
