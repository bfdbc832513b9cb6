"""Structured log lines under the logger `penstock`: a sentence and fields, as text or as JSON.

    logger = get_logger("replication")
    logger.info("follower left the ISR", topic="orders", partition=3, replica=2)

Library code only gets loggers. Who runs a broker as a program calls `configure`; in somebody else's process nobody
does, and nothing but the logger `penstock` is ever touched.
"""

from __future__ import annotations

import json
import logging
import sys
import textwrap
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from penstock.base.printable import printable, printable_cell

__all__ = ["StructuredLogger", "configure", "get_logger"]

ROOT_NAME = "penstock"
_FIELDS = "penstock_fields"
REPEAT_SECONDS = 60.0
LINES_REMEMBERED = 1024
LONGEST_TEXT = 8000  # characters of a sentence, a field or a traceback: what clients send may be in it

logging.getLogger(ROOT_NAME).addHandler(logging.NullHandler())


class StructuredLogger:
    """Wraps a standard logger; keyword arguments become fields of the line."""

    __slots__ = ("_bound", "_logger")

    def __init__(self, logger: logging.Logger, bound: Mapping[str, Any] | None = None) -> None:
        self._logger = logger
        self._bound = dict(bound or {})

    def bind(self, **fields: Any) -> StructuredLogger:
        """A logger whose lines all carry these fields."""
        return StructuredLogger(self._logger, {**self._bound, **fields})

    def debug(self, message: str, **fields: Any) -> None:
        self._log(logging.DEBUG, message, fields)

    def info(self, message: str, **fields: Any) -> None:
        self._log(logging.INFO, message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        self._log(logging.WARNING, message, fields)

    def error(self, message: str, **fields: Any) -> None:
        self._log(logging.ERROR, message, fields)

    def exception(self, message: str, **fields: Any) -> None:
        """An error with the traceback of the exception that is being handled."""
        self._log(logging.ERROR, message, fields, exc_info=True)

    def _log(self, level: int, message: str, fields: dict[str, Any], exc_info: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            extra = {_FIELDS: {**self._bound, **fields}}
            self._logger.log(level, "%s", message, exc_info=exc_info, extra=extra, stacklevel=3)


def get_logger(name: str, **bound: Any) -> StructuredLogger:
    """The logger of a room: `get_logger("log.cleaner")` writes as `penstock.log.cleaner`."""
    full_name = name if name == ROOT_NAME or name.startswith(ROOT_NAME + ".") else f"{ROOT_NAME}.{name}"
    return StructuredLogger(logging.getLogger(full_name), bound)


def configure(level: str = "info", log_format: str = "text", stream: TextIO | None = None) -> logging.Handler:
    """Send Penstock's lines to a stream (stderr), once: a second call replaces what the first set up."""
    logger = logging.getLogger(ROOT_NAME)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    for old in [h for h in logger.handlers if getattr(h, "penstock_configured", False)]:
        logger.removeHandler(old)
    handler.addFilter(Repetitions())
    handler.penstock_configured = True  # type: ignore[attr-defined]
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
    return handler


class Repetitions(logging.Filter):
    """A failure that lasts is said once, then once a minute: the same line again passes only then, with how often it
    was left out."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._said: OrderedDict[tuple[str, str], list[float]] = OrderedDict()
        """By line: when it was written last, and how often not since then."""

    def filter(self, record: logging.LogRecord) -> bool:
        line = (record.name, f"{record.getMessage()} {getattr(record, _FIELDS, '')}")
        now = self._monotonic()
        said = self._said.get(line)
        if said is not None and now - said[0] < REPEAT_SECONDS:
            said[1] += 1
            return False
        if said is not None and said[1]:
            setattr(record, _FIELDS, {**getattr(record, _FIELDS, {}), "repeated": int(said[1])})
        self._said[line] = [now, 0]
        self._said.move_to_end(line)
        if len(self._said) > LINES_REMEMBERED:
            self._said.popitem(last=False)
        return True


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextFormatter(logging.Formatter):
    """`time LEVEL logger: sentence key=value …`

    One line, whatever a client calls its group: nobody writes lines of his own into the log. A traceback is set in."""

    def format(self, record: logging.LogRecord) -> str:
        name = record.name.removeprefix(ROOT_NAME + ".")
        sentence = printable_cell(_shortened(record.getMessage()))
        parts = [f"{_timestamp(record)} {record.levelname:<7} {name}: {sentence}"]
        parts += [f"{key}={_plain(value)}" for key, value in getattr(record, _FIELDS, {}).items()]
        line = " ".join(parts)
        if record.exc_info:
            line += "\n" + textwrap.indent(printable(_shortened(self.formatException(record.exc_info))), "  ")
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _shortened(record.getMessage()),
            **{key: _shortened(value) for key, value in getattr(record, _FIELDS, {}).items()},
        }
        if record.exc_info:
            entry["exception"] = _shortened(self.formatException(record.exc_info))
        return json.dumps(entry, default=str, ensure_ascii=False)


def _shortened(value: Any) -> Any:
    """Of a long text its beginning and its end: a traceback says there what happened."""
    if not isinstance(value, str) or len(value) <= LONGEST_TEXT:
        return value
    half = LONGEST_TEXT // 2
    return f"{value[:half]} … {len(value) - 2 * half} characters … {value[-half:]}"


def _plain(value: Any) -> str:
    text = str(_shortened(str(value)))
    quoted = json.dumps(text, ensure_ascii=False) if not text or any(c in text for c in ' "=\n\t') else text
    return printable_cell(quoted)
