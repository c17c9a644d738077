"""What every client tried, as a table for people and as JSON."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

from tools.clients.attempts import Attempt

BEGIN, END = "<!-- made by make clients -->", "<!-- end -->"


def as_markdown(tried: Iterable[Attempt], checks: Iterable[str], date: str) -> str:
    """A row for each call, the clients in the order of the roster."""
    lines = ["| client | version | call | result |", "|---|---|---|---|"]
    for (client, version), rows in groupby(tried, key=lambda row: (row.client, row.version)):
        for place, row in enumerate(rows):
            named = f"{client} | {version}" if place == 0 else "|"
            lines.append(f"| {named} | {_cell(row.call)} | {_cell(row.result)} |")
    return "\n".join((f"On {date}:", "", *lines, "", *(f"* {check}" for check in checks)))


def as_json(tried: Sequence[Attempt], checks: Sequence[str], date: str) -> str:
    """Everything of the table."""
    rows = [asdict(row) | {"date": date} for row in tried]
    return json.dumps({"date": date, "calls": rows, "checks": list(checks)}, indent=1) + "\n"


def put_into(page: Path, table: str) -> None:
    """Replace what stands between the two marks of a page. Raises ValueError if it lacks them."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} lacks {BEGIN} or {END}")
    page.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
