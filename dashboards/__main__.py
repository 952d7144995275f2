"""`python -m dashboards`: writes the dashboards and the rules."""

from __future__ import annotations

from pathlib import Path

from dashboards.boards import BOARDS
from dashboards.slo import rules

HERE = Path(__file__).parent


def files() -> dict[Path, str]:
    boards = {HERE / "grafana" / f"{board.uid}.json": board.json() for board in BOARDS}
    return boards | {HERE / "rules" / "braid.yml": rules()}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, "utf-8")
        print(path.relative_to(HERE.parent))
