"""Which version this is: the one place that says so."""

from __future__ import annotations

__version__ = "0.2.0"
