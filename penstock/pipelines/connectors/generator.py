"""Made-up records at a steady rate: orders, payments and clicks that belong together, the same for the same seed.

Record n of a kind depends on the seed and n alone. So a generator can be read again from any point, and payments refer
to orders that exist.
"""

# Method names are Spark's.
# ruff: noqa: N802

from __future__ import annotations

import datetime
import random
import time
from collections.abc import Iterator
from typing import Any, Final, Literal

from pydantic import Field
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from penstock.pipelines.connectors.base import Loaded, Source
from penstock.pipelines.spec import Frozen

_PRODUCTS: Final = (
    ("espresso machine", 349.0),
    ("grinder", 129.5),
    ("kettle", 59.9),
    ("filter papers", 4.2),
    ("beans, 1 kg", 18.75),
    ("cup", 9.5),
)
_COUNTRIES: Final = ("DE", "FR", "IT", "JP", "BR", "US", "KE")
_PAGES: Final = ("/", "/search", "/product", "/cart", "/checkout")
COLUMNS: Final = {
    "orders": (
        "order_id STRING, customer_id STRING, product STRING, quantity INT, price DOUBLE, country STRING,"
        " ordered_at TIMESTAMP"
    ),
    "payments": "payment_id STRING, order_id STRING, amount DOUBLE, method STRING, paid_at TIMESTAMP",
    "clicks": "customer_id STRING, page STRING, clicked_at TIMESTAMP",
}
Kind = Literal["orders", "payments", "clicks"]


def record(kind: str, seed: int, number: int, at: datetime.datetime) -> tuple[Any, ...]:
    """Record `number` of a kind; its columns are `COLUMNS[kind]`."""
    chance = random.Random(f"{seed}-{number}")
    product, price = _PRODUCTS[min(int(chance.expovariate(0.6)), len(_PRODUCTS) - 1)]
    customer = f"c{int(chance.paretovariate(1.1)) % 500:03d}"
    quantity = 1 + int(chance.random() ** 4 * 5)
    country = chance.choice(_COUNTRIES)
    if kind == "orders":
        return (f"o{number:09d}", customer, product, quantity, price, country, at)
    if kind == "payments":
        method = chance.choice(("card", "card", "transfer", "wallet"))
        return (f"p{number:09d}", f"o{number:09d}", round(price * quantity, 2), method, at)
    return (customer, chance.choice(_PAGES), at)


class GeneratorSource(Source):
    class Options(Frozen):
        kind: Kind  # what is made up
        rows_per_second: int = Field(default=10, gt=0)  # how fast, and how far apart in their own time
        seed: int = 1  # the same seed makes the same records
        rows: int | None = Field(default=None, gt=0)  # so many in all, at once; without end when absent
        start: datetime.datetime = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)  # time of the first of `rows`

    def identity(self) -> str:
        return f"generator {self.options.kind}"

    def load(self) -> Loaded:
        from penstock.pipelines.formats.base import parse_ddl

        spark, options = self.context.spark, self.options
        columns = parse_ddl(COLUMNS[options.kind], spark)
        if self.name in self.context.given:
            return Loaded(spark.readStream.schema(columns).json(self.context.given[self.name]))
        spark.dataSource.register(GeneratorStream)
        given = {
            "kind": options.kind,
            "rate": str(options.rows_per_second),
            "seed": str(options.seed),
            "rows": str(options.rows or 0),
            "start": str(options.start.timestamp()),
        }
        return Loaded(spark.readStream.format("penstock_generator").options(**given).schema(columns).load())


class GeneratorStream(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock_generator"

    def streamReader(self, schema: Any) -> Any:
        return GeneratorReader(dict(self.options))


class _Numbers(InputPartition):
    def __init__(self, first: int, last: int, began: float) -> None:
        super().__init__((first, last, began))
        self.first, self.last, self.began = first, last, began


class GeneratorReader(DataSourceStreamReader):
    """An offset is how many records there have been, and when the first one was."""

    def __init__(self, options: dict[str, str]) -> None:
        self._kind, self._seed = options["kind"], int(options["seed"])
        self._rate, self._rows = int(options["rate"]), int(options["rows"])
        self._start = float(options["start"])

    def initialOffset(self) -> dict[str, Any]:
        return {"count": 0, "began": self._start if self._rows else time.time()}

    def latestOffset(self, *arguments: Any) -> dict[str, Any]:
        if self._rows:
            return {"count": self._rows, "began": self._start}
        began = arguments[0]["began"]
        return {"count": max(arguments[0]["count"], int((time.time() - began) * self._rate)), "began": began}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [_Numbers(start["count"], end["count"], end["began"])] if end["count"] > start["count"] else []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        if isinstance(partition, _Numbers):
            for number in range(partition.first, partition.last):
                at = datetime.datetime.fromtimestamp(partition.began + number / self._rate, datetime.UTC)
                yield record(self._kind, self._seed, number, at)

    def commit(self, end: dict[str, Any]) -> None:
        return
