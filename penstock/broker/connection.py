"""One client's connection: raw non-blocking socket, frames in, answers out in order."""

from __future__ import annotations


class Connection:
    """Filled in next: reading, framing, ordered answers, sendfile."""
