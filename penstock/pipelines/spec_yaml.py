"""Pipelines in YAML: errors name the file and the line."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

import yaml

from penstock.pipelines.spec import Path, PipelineSpec, SpecError, from_data


def load_file(path: FilePath) -> PipelineSpec:
    return load_text(path.read_text(encoding="utf-8"), str(path))


def load_text(text: str, name: str = "pipeline") -> PipelineSpec:
    data, lines = parse(text, name)
    try:
        return from_data(data)
    except SpecError as error:
        raise SpecError(error.message, error.path, f"{name}:{line_of(error.path, lines)}") from None


def parse(text: str, name: str) -> tuple[Any, dict[Path, int]]:
    """The data, and the line of every key in it."""
    lines: dict[Path, int] = {(): 1}
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None:
            raise SpecError("the file is empty", place=name)
        _note_lines(node, (), lines, name)
        return yaml.safe_load(text), lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}" if mark else name
        raise SpecError(f"this is no YAML: {error.problem or error.context}", place=place) from None
    except yaml.YAMLError as error:  # characters that YAML does not allow
        raise SpecError(f"this is no YAML: {str(error).splitlines()[0]}", place=name) from None
    except RecursionError:
        raise SpecError("it is nested too deeply", place=name) from None
    except ValueError as error:  # a date that no calendar has
        raise SpecError(f"a value cannot be read: {error}", place=name) from None


def _note_lines(node: Any, path: Path, lines: dict[Path, int], name: str) -> None:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise SpecError("a key is a word, not a list or a table", place=f"{name}:{line}")
            if key.value in seen:
                raise SpecError(f"the key {key.value!r} stands here twice", place=f"{name}:{line}")
            seen.add(key.value)
            lines[(*path, key.value)] = line
            _note_lines(value, (*path, key.value), lines, name)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[(*path, index)] = item.start_mark.line + 1
            _note_lines(item, (*path, index), lines, name)


def line_of(path: Path, lines: dict[Path, int]) -> int:
    """The line of a path, or of the nearest thing around it."""
    for length in range(len(path), -1, -1):
        for candidate in (path[:length], tuple(str(part).replace("_", "-") for part in path[:length])):
            if candidate in lines:
                return lines[candidate]
    return 1
