"""Log lines, for people and for machines."""

from __future__ import annotations

import json
import logging
import sys

from service import logs


def record(message: str, **more: object) -> logging.LogRecord:
    made = logging.LogRecord("service.x", logging.WARNING, "x.py", 1, message, ("it",), None)
    made.__dict__.update(more)
    return made


def test_a_json_line_names_the_request_and_the_tenant() -> None:
    logs.request_id.set("r-1")
    logs.tenant.set("t-1")
    line = json.loads(logs.JsonLines().format(record("lost %s", braid={"tries": 3})))
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "warning", "logger": "service.x", "message": "lost it", "request_id": "r-1", "tenant": "t-1",
        "tries": 3,
    }  # fmt: skip


def test_a_line_written_for_nobody_names_nobody() -> None:
    logs.request_id.set("")
    logs.tenant.set("")
    assert set(json.loads(logs.JsonLines().format(record("lost %s")))) == {"time", "level", "logger", "message"}


def test_an_exception_is_a_field_and_stays_on_its_line() -> None:
    try:
        int("two\nlines")
    except ValueError:
        text = logs.JsonLines().format(record("lost %s", exc_info=sys.exc_info()))
    assert "\n" not in text
    assert "ValueError" in json.loads(text)["exception"]


def test_a_plain_line_ends_with_the_request() -> None:
    logs.request_id.set("r-1")
    plain = logs.PlainLines("%(levelname)s %(name)s: %(message)s")
    assert plain.format(record("lost %s", braid={"n": 1})) == 'WARNING service.x: lost it {"n":1} [request r-1]'
    logs.request_id.set("")
    assert plain.format(record("lost %s")) == "WARNING service.x: lost it"
