"""Tables: paged, sorted and searched by the server; a row may lead somewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from penstock.base.printable import printable_cell
from penstock.console.data.paging import Page, Query, Row, page_of
from penstock.console.widgets.pieces import empty_state

SIZES = (25, 50, 100)


@dataclass(frozen=True)
class Column:
    name: str
    label: str
    text: Callable[[Row], str] | None = None  # how a row's cell reads; the field itself if None
    right: bool = False
    sortable: bool = True
    link: Callable[[Row], str] | None = None
    tone: Callable[[Row], str] | None = None  # shows the cell as a pill of this tone
    wide: bool = False  # left out on a phone


LINK = (
    '<q-td :props="props"><a v-if="props.row._link_{name}" :href="props.row._link_{name}" '
    'class="pk-name" :title="props.value">{{{{ props.value }}}}</a>'
    "<template v-else>{{{{ props.value }}}}</template></q-td>"
)
PILL = (
    '<q-td :props="props"><span v-if="props.row._tone_{name} != null" '
    ":class=\"'pk-pill ' + (props.row._tone_{name} ? 'pk-' + props.row._tone_{name} : '')\">"
    "{{{{ props.value }}}}</span>"
    "<template v-else>{{{{ props.value }}}}</template></q-td>"
)


class ServerTable:
    """`fetch` is asked for one page at a time; `refresh` asks again without losing the reader's place."""

    def __init__(
        self,
        columns: Sequence[Column],
        fetch: Callable[[Query], Awaitable[Page]],
        *,
        key: str = "name",
        sort: str = "",
        descending: bool = False,
        size: int = 25,
        search: str = "",
        empty: tuple[str, str, str] = ("inbox", "Nothing here", ""),
        on_row: Callable[[Row], Any] | None = None,
        classes: str = "",
    ) -> None:
        self._columns, self._fetch = columns, fetch
        self._query = Query(sort=sort, descending=descending, size=size)
        self._total = 0
        with ui.element("div").style("width: 100%"):
            if search:
                with ui.element("div").style("padding: 14px 20px 6px"):
                    self._search = ui.input(placeholder=search).props(f'outlined dense clearable aria-label="{search}"')
                    self._search.style("max-width: 340px; width: 100%").on_value_change(self._on_search)
                    self._search.props("debounce=250")
            self._table = ui.table(
                columns=[self._as_quasar(column) for column in columns],
                rows=[],
                row_key=key,
                pagination={
                    "rowsPerPage": size,
                    "sortBy": sort or None,
                    "descending": descending,
                    "page": 1,
                    "rowsNumber": 0,
                },
            )
            self._table.props(
                f'flat binary-state-sort rows-per-page-label="Rows" :rows-per-page-options="{list(SIZES)}"'
            )
            self._table.classes(f"{classes} pk-clickable" if on_row is not None else classes)
            self._table.on("request", self._on_request)
            self._table.on_pagination_change(self._on_pagination)
            if on_row is not None:
                self._table.on("rowClick", lambda event: on_row(event.args[1]), [[], None, []])
            for column in columns:
                template = LINK if column.link else PILL if column.tone else None
                if template is not None:
                    self._table.add_slot(f"body-cell-{column.name}", template.format(name=column.name))
            with self._table.add_slot("no-data"), ui.element("div").style("width: 100%"):
                empty_state(*empty)
        self._key = key

    @staticmethod
    def _as_quasar(column: Column) -> dict[str, Any]:
        wide = {"classes": "pk-wide", "headerClasses": "pk-wide"} if column.wide else {}
        return {
            "name": column.name,
            "label": column.label,
            "field": column.name,
            "sortable": column.sortable,
            "align": "right" if column.right else "left",
            **wide,
        }

    def _on_pagination(self, event: Any) -> None:
        """The browser echoes what it knew; how many rows there are is ours to say."""
        if event.value.get("rowsNumber") != self._total:
            self._table.pagination = {**event.value, "rowsNumber": self._total}
            self._table.update()

    async def _on_search(self, event: Any) -> None:
        self._query = Query(event.value or "", self._query.sort, self._query.descending, 1, self._query.size)
        await self.refresh()

    async def _on_request(self, event: Any) -> None:
        asked = event.args["pagination"] if isinstance(event.args, Mapping) else event.args[0]["pagination"]
        self._query = Query(
            self._query.search,
            asked.get("sortBy") or "",
            bool(asked.get("descending")),
            int(asked.get("page") or 1),
            int(asked.get("rowsPerPage") or 25),
        )
        await self.refresh()

    def change_fetch(self, fetch: Callable[[Query], Awaitable[Page]]) -> None:
        """Rows come from here from now on; `refresh` shows them."""
        self._fetch = fetch

    async def refresh(self) -> None:
        page = await self._fetch(self._query)
        if self._table.is_deleted:
            return
        self._total = page.total
        if page.total > min(SIZES):
            self._table.props(remove="hide-pagination")
        else:
            self._table.props("hide-pagination")
        if page.total or self._query.search:
            self._table.props(remove="hide-header")
        else:
            self._table.props("hide-header")
        self._table.rows = [self._row(row) for row in page.rows]
        self._table.pagination = {
            "sortBy": self._query.sort or None,
            "descending": self._query.descending,
            "page": self._query.page,
            "rowsPerPage": self._query.size,
            "rowsNumber": page.total,
        }
        self._table.update()

    def _row(self, row: Row) -> dict[str, Any]:
        made: dict[str, Any] = {self._key: row.get(self._key)}
        for column in self._columns:
            made[column.name] = column.text(row) if column.text else row.get(column.name)
            if column.link or isinstance(made[column.name], str):
                made[column.name] = printable_cell(str(made[column.name]))
            if column.link:
                made[f"_link_{column.name}"] = column.link(row)
            if column.tone:
                made[f"_tone_{column.name}"] = column.tone(row)
        return made


def fixed(rows: Sequence[Row], name: str = "name") -> Callable[[Query], Awaitable[Page]]:
    """Rows that are all here already, as a `fetch`; `name` is the field that a search looks at."""

    async def fetch(query: Query) -> Page:
        return page_of(rows, query, name=name)

    return fetch
