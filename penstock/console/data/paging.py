"""Pages of long lists: searched, sorted and cut on the server, so that a browser never holds thousands of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
LARGEST_PAGE = 500


@dataclass(frozen=True, slots=True)
class Query:
    """What a table asks for."""

    search: str = ""
    sort: str = ""
    descending: bool = False
    page: int = 1
    size: int = 25


@dataclass(frozen=True, slots=True)
class Page:
    rows: list[Row]
    total: int

    def as_json(self) -> dict[str, Any]:
        return {"total": self.total, "rows": list(self.rows)}


def page_of(rows: Iterable[Row], query: Query, *, name: str = "name", default_sort: str | None = None) -> Page:
    """Rows whose name holds the search, in order; rows without the figure that orders come last."""
    wanted = query.search.strip().casefold()
    found = [row for row in rows if not wanted or wanted in str(row.get(name, "")).casefold()]
    by = query.sort or default_sort or name
    having = [row for row in found if row.get(by) is not None]
    lacking = [row for row in found if row.get(by) is None]
    having.sort(key=lambda row: _order(row[by]), reverse=query.descending)
    ordered = having + lacking
    size = max(1, min(query.size, LARGEST_PAGE))
    start = (max(1, query.page) - 1) * size
    return Page(ordered[start : start + size], len(ordered))


def _order(value: Any) -> tuple[int, Any]:
    if isinstance(value, bool | int | float):
        return (0, value)
    return (1, str(value).casefold())
