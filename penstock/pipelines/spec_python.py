"""Pipelines in Python: decorators on functions from DataFrames to DataFrames. Nothing runs when a file is loaded."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from penstock.pipelines.spec import PipelineSpec, SpecError, from_data

Function = TypeVar("Function", bound=Callable[..., Any])


class Pipeline:
    """Collects what a pipeline is made of; `spec()` gives the frozen, checked result."""

    def __init__(self, name: str, *, trigger: Any = None, settings: dict[str, Any] | None = None) -> None:
        self._data: dict[str, Any] = {"name": name, "sources": {}, "views": {}, "sinks": {}, "expectations": []}
        if trigger is not None:
            self._data["trigger"] = trigger
        if settings is not None:
            self._data["settings"] = settings

    def source(self, name: str, connector: str = "topic", **options: Any) -> str:
        self._new(name)
        self._data["sources"][name] = {"connector": connector, **options}
        return name

    def view(self, function: Function) -> Function:
        """A view named like the function; its parameters name the tables it reads."""
        name = function.__name__
        self._new(name)
        self._data["views"][name] = {
            "python": f"{function.__module__}:{function.__qualname__}",
            "from": list(inspect.signature(function).parameters),
        }
        return function

    def sql(self, name: str, text: str) -> str:
        self._new(name)
        self._data["views"][name] = {"sql": text}
        return name

    def operator(self, name: str, operator: str, from_: str | list[str], **options: Any) -> str:
        self._new(name)
        self._data["views"][name] = {"operator": operator, "from": from_, **options}
        return name

    def expect(
        self, view: str | Callable[..., Any], condition: str, *, action: str = "drop", name: str | None = None
    ) -> None:
        entry = {"view": _name(view), "condition": condition, "action": action}
        self._data["expectations"].append(entry | ({"name": name} if name else {}))

    def sink(self, name: str, from_: str | Callable[..., Any], connector: str = "topic", **options: Any) -> str:
        if name in self._data["sinks"]:
            raise SpecError(f"there are two sinks named {name!r}")
        self._data["sinks"][name] = {"from": _name(from_), "connector": connector, **options}
        return name

    def _new(self, name: str) -> None:
        if name in self._data["sources"] or name in self._data["views"]:
            raise SpecError(f"there are two tables named {name!r}")

    def spec(self) -> PipelineSpec:
        return from_data(self._data)


def _name(table: str | Callable[..., Any]) -> str:
    return table if isinstance(table, str) else table.__name__


def load_file(path: Path) -> PipelineSpec:
    """The pipeline that a file declares; its code is stored with the spec, so that runners need no copy of the file."""
    module_name = f"penstock_pipeline_{path.stem}".replace("-", "_").replace(".", "_")
    code = path.read_text(encoding="utf-8")
    module = load_module(module_name, code, str(path))
    found = [value for value in vars(module).values() if isinstance(value, Pipeline)]
    if len(found) != 1:
        raise SpecError(
            f"there are {len(found)} pipelines; a file declares one: pipeline = Pipeline(…)", place=str(path)
        )
    try:
        spec = found[0].spec()
    except SpecError as error:
        raise SpecError(error.message, error.path, str(path)) from None
    return spec.model_copy(update={"modules": {module_name: code}})


def load_module(name: str, code: str, place: str = "") -> Any:
    """Code as a module of that name."""
    spec = importlib.util.spec_from_loader(name, loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        exec(compile(code, place or f"<{name}>", "exec"), vars(module))
    except SpecError:
        raise
    except Exception as error:
        del sys.modules[name]
        lines = [frame.lineno for frame in inspect.getinnerframes(error.__traceback__) if frame.filename == place]  # type: ignore[arg-type]
        where = f"{place}:{lines[-1]}" if lines else place
        raise SpecError(f"{type(error).__name__}: {error}", place=where) from error
    return module
