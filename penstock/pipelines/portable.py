"""An applied pipeline runs where the files of whoever applied it are not: what it needs of them goes along."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from penstock.pipelines.spec import SpecError


def with_contents(data: Any) -> Any:
    """The spec with `descriptor` in place of each `descriptor_file`. A path with ${env:…} in it is the runner's."""
    if isinstance(data, dict):
        path = data.get("descriptor_file")
        if isinstance(path, str) and "${" not in path:
            rest = {key: value for key, value in data.items() if key != "descriptor_file"}
            return {**rest, "descriptor": _read(path)}
        return {key: with_contents(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [with_contents(value) for value in data]
    return data


def _read(path: str) -> str:
    try:
        return base64.b64encode(Path(path).read_bytes()).decode()
    except OSError as error:
        raise SpecError(f"descriptor_file {path}: {error.strerror}") from None
