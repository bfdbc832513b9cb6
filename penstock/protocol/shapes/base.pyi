# Rendered from Kafka's message schemas by `make docs`; do not edit.

from typing import Any, Self

class Api:
    """What the messages of every API have in common."""

    name: str
    key: int
    min_version: int
    max_version: int

    def request_struct(self, name: str) -> Any: ...
    def response_struct(self, name: str) -> Any: ...
    def load_all_versions(self) -> Self: ...
