"""Asks pip-audit about every pin. Fails on a known vulnerability; where it has no data, says so and passes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LOCKS = ("requirements.lock", "requirements-dev.lock")
SECONDS = 20


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        locks = [argument for lock in LOCKS for argument in ("-r", lock)]
        options = ["--disable-pip", "--require-hashes", "--progress-spinner", "off", "-f", "json", "-o", str(report)]
        try:
            command = [sys.executable, "-m", "pip_audit", *locks, *options]
            subprocess.run(command, capture_output=True, check=False, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            report.unlink(missing_ok=True)
        found = json.loads(report.read_text())["dependencies"] if report.exists() else []
    said, failed = verdict(found)
    print(f"audit: {said}")
    return int(failed)


def verdict(dependencies: list[dict[str, Any]]) -> tuple[str, bool]:
    """What to say, and whether that is a failure. pip-audit calls all well even when it could look nothing up."""
    asked = [each for each in dependencies if "skip_reason" not in each]
    if not asked:
        return "pip-audit cannot reach its data from here, or not in time: nothing was checked", False
    bad = [f"{each['name']} {each['version']}: {fault['id']}" for each in asked for fault in each["vulns"]]
    said = f"{len(asked)} of {len(dependencies)} dependencies were looked up, {len(bad)} vulnerabilities are known"
    return "\n  ".join([said, *bad]), bool(bad)


if __name__ == "__main__":
    sys.exit(main())
