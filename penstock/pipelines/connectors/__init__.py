"""Connectors by name; `module:Class` names one of the user's own."""

from __future__ import annotations

import importlib
from typing import Any, Final

from penstock.pipelines.connectors.base import Sink, Source
from penstock.pipelines.spec import Path, SpecError, unknown_key

# name → module in this package, class
_SOURCES: Final = {
    "topic": ("topic", "TopicSource"),
    "files": ("files", "FilesSource"),
    "postgres": ("postgres_source", "PostgresSource"),
    "jdbc": ("jdbc", "JdbcSource"),
    "parquet": ("table", "TableSource"),
    "delta": ("delta", "DeltaSource"),
    "generator": ("generator", "GeneratorSource"),
}
_SINKS: Final = {
    "topic": ("topic", "TopicSink"),
    "files": ("files", "FilesSink"),
    "postgres": ("postgres", "PostgresSink"),
    "sql": ("sql", "SqlSink"),
    "jdbc": ("jdbc", "JdbcSink"),
    "parquet": ("table", "TableSink"),
    "delta": ("delta", "DeltaSink"),
    "iceberg": ("iceberg", "IcebergSink"),
    "console": ("console", "ConsoleSink"),
}


def source(name: str, path: Path = ()) -> type[Source]:
    return _find(name, _SOURCES, Source, path)


def sink(name: str, path: Path = ()) -> type[Sink]:
    return _find(name, _SINKS, Sink, path)


def _find(name: str, table: dict[str, tuple[str, str]], base: type[Any], path: Path) -> type[Any]:
    if ":" in name:
        return _users_own(name, base, path)
    if name not in table:
        problem = unknown_key(name, "", list(table)).replace("unknown key", "there is no connector")
        raise SpecError(problem, path)
    module, class_name = table[name]
    found: type[Any] = getattr(importlib.import_module(f"{__name__}.{module}"), class_name)
    return found


def _users_own(name: str, base: type[Any], path: Path) -> type[Any]:
    module, _, class_name = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), class_name)
    except (ImportError, AttributeError) as error:
        raise SpecError(f"connector {name!r}: {error}", path) from None
    if not (isinstance(found, type) and issubclass(found, base)):
        raise SpecError(f"connector {name!r} is no {base.__name__}; see penstock.pipelines.connectors.base", path)
    return found
