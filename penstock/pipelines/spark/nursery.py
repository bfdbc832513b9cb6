"""Where the Python processes of a Spark on one machine come from: one process that has loaded all they need, forked.

Spark starts a daemon for each kind of Python work and a process for each streaming source, and each of them loads
PySpark, Arrow and our kernels anew: some thirty seconds of CPU before the first batch. Here they are loaded once, while
the JVM starts; `nursery_door` stands in for Python's own executable. It ends with its input, which the driver holds.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from penstock.pipelines.spark.nursery_door import is_on_its_own

_LOADED: Final = (
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.pandas.types",
    "pandas",
    "pyspark_penstock",
    "penstock.pipelines.spark.source",
    "penstock.pipelines.spark.source_fetch",
    "penstock.pipelines.spark.sink",
    "penstock.pipelines.spark.sink_task",
)
_LONGEST_PATH: Final = 100  # of a Unix socket
_LONGEST_REQUEST: Final = 1 << 22
_LAST_SECONDS: Final = 20.0  # what does not end by itself when Spark is gone
_HASH_SEED: Final = "PYTHONHASHSEED"
DOOR: Final = Path(__file__).with_name("nursery_door.py")


# --- in the driver ---


@cache
def open_nursery() -> str | None:
    """Start one for this process; what Spark shall take for Python, or None where there can be none."""
    if os.name != "posix":
        return None
    folder = Path(tempfile.mkdtemp(prefix="penstock-nursery-"))
    place = folder / "door"
    if len(str(place)) > _LONGEST_PATH:
        folder.rmdir()
        return None
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{DOOR}" "{place}" "{sys.executable}" "$@"\n')
    python.chmod(0o700)
    # Threads of a numerics library would not survive the fork, and Spark wants one per task anyhow.
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment = {_HASH_SEED: "0", **os.environ, **threads}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:  # doors may knock while all is being loaded
        listening.bind(str(place))
        listening.listen(128)
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.pipelines.spark.nursery", str(listening.fileno()), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
            pass_fds=[listening.fileno()],
        )
    atexit.register(_close, process, folder)
    return str(python)


def _close(process: subprocess.Popen[bytes], folder: Path) -> None:
    assert process.stdin is not None
    process.stdin.close()
    shutil.rmtree(folder, ignore_errors=True)


# --- in the nursery ---


@dataclass
class Child:
    pid: int
    door: socket.socket | None  # None: nobody stands for it, it ends with its connection to Spark


class Nursery:
    def __init__(self, listening: socket.socket, folder: str) -> None:
        self._listening, self._folder = listening, folder
        self._children: dict[int, Child] = {}
        self._selector = selectors.DefaultSelector()
        self._woken, waking = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(waking, False)
        signal.set_wakeup_fd(waking)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def run(self) -> None:
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._selector.register(0, selectors.EVENT_READ)
        is_open = True
        while is_open:
            for key, _ in self._selector.select():
                if key.fileobj is self._listening:
                    self._take_in()
                elif key.fileobj == self._woken:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._woken, 4096)
                    self._bury()
                elif key.fileobj == 0:
                    is_open = bool(os.read(0, 4096))
                else:
                    self._left(key.data)
        self._end()

    def _take_in(self) -> None:
        door, _ = self._listening.accept()
        try:
            header, files, _, _ = socket.recv_fds(door, 4, 3)
            length = int.from_bytes(header, "big")
            request = bytearray()
            while len(request) < length <= _LONGEST_REQUEST:
                piece = door.recv(length - len(request))
                if not piece:
                    break
                request += piece
            pid = os.fork() if len(request) == length and len(files) == 3 else -1
        except OSError:  # a door that is closed at once
            door.close()
            return
        if pid == 0:
            self._become(bytes(request), files, door)
        for file in files:
            os.close(file)
        if pid < 0:
            door.close()
            return
        if is_on_its_own(request.split(b"\1")[1].decode()):
            with contextlib.suppress(OSError):
                door.sendall(bytes(4))
            door.close()
            self._children[pid] = Child(pid, None)
            return
        self._children[pid] = Child(pid, door)
        self._selector.register(door, selectors.EVENT_READ, self._children[pid])

    def _become(self, request: bytes, files: list[int], door: socket.socket) -> None:
        """In the forked process: never returns."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            self._selector.close()
            self._listening.close()
            door.close()
            for child in self._children.values():
                if child.door is not None:
                    child.door.close()
            for standard, file in enumerate(files):
                os.dup2(file, standard)
                os.close(file)
            code = _run(request)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _left(self, child: Child) -> None:
        """Spark has ended the process that stands for it."""
        assert child.door is not None
        self._selector.unregister(child.door)
        child.door.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGTERM)

    def _bury(self) -> None:
        while self._children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self._children.pop(pid, None)
            if child is not None and child.door is not None and child.door.fileno() >= 0:
                self._selector.unregister(child.door)
                code = os.waitstatus_to_exitcode(status)
                with contextlib.suppress(OSError):
                    child.door.sendall((code & 0xFF).to_bytes(4, "big"))
                child.door.close()

    def _end(self) -> None:
        """The driver is gone, and Spark with it: what came from here notices, or is made to."""
        self._listening.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        deadline = time.monotonic() + _LAST_SECONDS
        while self._children and time.monotonic() < deadline:
            time.sleep(0.1)
            self._bury()
        for child in self._children.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)


def _run(request: bytes) -> int:
    folder, arguments, variables = request.decode("utf-8", "surrogateescape").split("\1")
    module, *rest = arguments.split("\0")
    environment = dict(item.split("=", 1) for item in variables.split("\0"))
    os.chdir(folder)
    if environment.get(_HASH_SEED, os.environ.get(_HASH_SEED)) != os.environ.get(_HASH_SEED):
        os.execve(sys.executable, [sys.executable, "-m", module, *rest], environment)  # decided when Python starts
    os.environ.clear()
    os.environ.update(environment)
    for path in reversed(environment.get("PYTHONPATH", "").split(os.pathsep)):
        if path and path not in sys.path:
            sys.path.insert(0, path)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as `python -m` does
    sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
    sys.argv = [module, *rest]
    sys.modules.pop(module, None)  # it is run as the main program now
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def main() -> None:
    nursery = Nursery(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
    for name in _LOADED:
        importlib.import_module(name)
    from penstock.protocol import columnar

    columnar.warm_up()
    gc.collect()
    gc.freeze()  # what is never collected is never written to, and stays shared
    nursery.run()


if __name__ == "__main__":
    main()
