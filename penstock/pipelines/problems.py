"""What went wrong, in one line: Spark's and Java's long stories cut down to the sentence that helps."""

from __future__ import annotations

import re
from typing import Any, Final

_MAX_CHARACTERS: Final = 600
_PYTHON_ERROR: Final = re.compile(
    r"^(?:[\w.]+\.)?(\w+(?:Errors?|Exception|Loss|Lost|Driver|Missing|Read|Differ)): (.+)$", re.MULTILINE
)
_ERROR_CLASS: Final = re.compile(r"^\[([A-Z0-9_.]+)\]\s*")
_NOISE: Final = ("SparkException", "Py4JJavaError", "PythonException", "StreamingQueryException")


def reason_of(error: BaseException) -> str:
    """The sentence of the innermost cause."""
    text = _java_reason(error) or str(error)
    return _shortened(text, type(error).__name__)


def story_of(error: BaseException) -> str | None:
    """Spark's whole story, every cause with its trace; None if there is none. For logs, not for people in a hurry."""
    told: str | None = None
    inner: BaseException | None = error
    while inner is not None:
        if hasattr(inner, "java_exception"):
            return str(inner)  # py4j's own text is the whole of it
        told = getattr(inner, "_stackTrace", None) or told  # the cause's own is the longer one
        inner = getattr(inner, "_cause", None) or inner.__cause__
        if told is not None and "Caused by" in told:
            break
    return told


def _java_reason(error: BaseException) -> str | None:
    """The root cause of a Java exception, as far as one is attached."""
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if java is None:
        return None
    try:
        while java.getCause() is not None:
            java = java.getCause()
        return f"{java.getClass().getSimpleName()}: {java.getMessage()}"
    except Exception:  # the JVM may be gone by now; the error's own text must do
        return None


def _shortened(text: str, kind: str) -> str:
    inner = [found for found in _PYTHON_ERROR.findall(text) if found[0] not in _NOISE]
    if "Traceback" in text and inner:
        name, message = inner[-1]
        return f"{name}: {message}"[:_MAX_CHARACTERS] if name != "SpecError" else message[:_MAX_CHARACTERS]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and re.fullmatch(r"\w+(Exception|Error):?", lines[0]):
        lines = lines[1:]
    first = lines[0] if lines else kind
    first = re.sub(r"^(\w+Exception|\w+Error): ", "", first) if "[" in first else first
    first = _ERROR_CLASS.sub("", first)
    first = re.sub(r"\s*SQLSTATE: \w+.*$", "", first)
    return first[:_MAX_CHARACTERS]
