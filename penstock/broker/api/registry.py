"""The list of APIs that this broker serves: one module per API in this folder, found by looking.

Dispatch, ApiVersions and docs/apis.md all read this registry, so what is advertised is what is implemented.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from penstock.broker.api.spec import ApiSpec

_NOT_APIS = {"spec", "registry"}


@dataclass(frozen=True, slots=True)
class RegisteredApi:
    spec: ApiSpec
    module: ModuleType


class Registry:
    """All API modules by key. `register` exists for tests and extensions; modules of the folder come by themselves."""

    def __init__(self) -> None:
        self._apis: dict[int, RegisteredApi] | None = None

    @property
    def apis(self) -> dict[int, RegisteredApi]:
        if self._apis is None:
            self._apis = {}
            package = importlib.import_module("penstock.broker.api")
            for module_info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
                if module_info.name not in _NOT_APIS:
                    self.register(importlib.import_module(f"penstock.broker.api.{module_info.name}"))
        return self._apis

    def register(self, module: ModuleType) -> None:
        """Add the API that the module defines; a module without `API` is a helper that several share."""
        spec: ApiSpec | None = getattr(module, "API", None)
        if spec is None:
            return
        assert self._apis is not None
        if spec.key in self._apis:
            raise ValueError(f"API key {spec.key} is served by both {self._apis[spec.key].module} and {module}")
        self._apis[spec.key] = RegisteredApi(spec, module)

    def get(self, api_key: int) -> RegisteredApi | None:
        return self.apis.get(api_key)

    def specs(self) -> list[ApiSpec]:
        return [self.apis[key].spec for key in sorted(self.apis)]

    def advertised(self, settings: Any) -> list[tuple[int, int, int]]:
        """(key, min, max) as ApiVersions of a broker with these settings shows them to clients."""
        return [
            (spec.key, spec.shown_min_version, spec.highest_version(settings))
            for spec in self.specs()
            if not spec.inter_broker_only
        ]


REGISTRY = Registry()
