"""The one place that knows numba: how a kernel is compiled and where its machine code is kept between runs.

Numba keeps compiled code beside the source or in the user's cache folder. In a container both may be read-only, and
then decorating a function fails: so a folder that can be written is chosen before numba is asked.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from penstock.base.own_folder import own_folder

Function = TypeVar("Function", bound=Callable[..., Any])


def cache_folder(source_folder: Path, environment: dict[str, str], temporary: Path) -> Path | None:
    """The folder numba must be told to use, or None when it finds a writable one by itself."""
    if environment.get("NUMBA_CACHE_DIR"):
        return None
    if _is_writable(source_folder / "__pycache__"):
        return None
    candidates = [Path(environment["XDG_CACHE_HOME"])] if environment.get("XDG_CACHE_HOME") else []
    if environment.get("HOME"):
        candidates.append(Path(environment["HOME"]) / ".cache")
    for folder in candidates:
        if _is_writable(folder / "penstock" / "numba"):
            return folder / "penstock" / "numba"
    return own_folder("numba", temporary)


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


_chosen = cache_folder(Path(__file__).parent, dict(os.environ), Path(tempfile.gettempdir()))
if _chosen is not None:
    _chosen.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.environ["NUMBA_CACHE_DIR"] = str(_chosen)

import numba  # noqa: E402  (reads NUMBA_CACHE_DIR when it is imported)
from numba.core import cgutils, types  # noqa: E402
from numba.extending import intrinsic  # noqa: E402

if _chosen is not None:
    numba.config.CACHE_DIR = str(_chosen)  # in case somebody imported numba before us


def kernel(function: Function) -> Function:
    """Compile on first use, release the GIL while running, keep the code on disk."""
    compiled: Function = numba.njit(cache=True, nogil=True, boundscheck=False)(function)
    return compiled


def inlined(function: Function) -> Function:
    """A small piece of a kernel; its code becomes part of the kernels that use it."""
    compiled: Function = numba.njit(cache=True, nogil=True, boundscheck=False)(function)
    return compiled


@intrinsic
def copy_bytes(context: Any, target: Any, at: Any, source: Any, start: Any, size: Any) -> Any:
    """`memcpy` between byte arrays: a loop over bytes costs four times as much on short keys and values."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        into = context.make_array(signature.args[0])(context, builder, arguments[0])
        out_of = context.make_array(signature.args[2])(context, builder, arguments[2])
        to, begin, count = (
            context.cast(builder, arguments[index], signature.args[index], types.intp) for index in (1, 3, 4)
        )
        cgutils.raw_memcpy(builder, builder.gep(into.data, [to]), builder.gep(out_of.data, [begin]), count, 1)
        return context.get_dummy_value()

    return types.void(target, at, source, start, size), generate
