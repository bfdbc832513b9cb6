"""Completion as a user has it: a real shell on a real terminal, and the Tab key."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source ./script"),
    "zsh": (["zsh", "-f", "-i"], "autoload -Uz compinit; compinit -u -D; source ./script"),
    "fish": (["fish", "--no-config", "-i"], "source ./script"),
}


class Terminal:
    """A shell on a terminal: what is typed into it, and what it shows."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self._shell, self._master = pty.fork()  # the terminal must be the shell's own, or it has no job control
        if self._shell == 0:
            os.chdir(folder)
            os.execvpe(command[0], command, environment)
        self.shown = b""

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 60
        with contextlib.suppress(OSError):  # how Linux says that the shell is gone
            while text.encode() not in self.shown and time.monotonic() < deadline:
                if select.select([self._master], [], [], 0.2)[0]:
                    self.shown += os.read(self._master, 65_536)
        assert text.encode() in self.shown, self.shown.decode(errors="replace")

    def close(self) -> None:
        os.killpg(self._shell, signal.SIGKILL)
        os.waitpid(self._shell, 0)
        os.close(self._master)


@pytest.mark.parametrize("shell", SHELLS)
def test_tab_completes_commands_and_options(run: Run, environment: dict[str, str], tmp_path: Path, shell: str) -> None:
    command, load = SHELLS[shell]
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    (tmp_path / "script").write_text(run(f"completion {shell}").stdout)
    terminal = Terminal(command, {**environment, "TERM": "xterm", "COLUMNS": "200"}, tmp_path)
    try:
        terminal.type(f"{load}; echo LOAD''ED\n")
        terminal.wait_for("LOADED")
        terminal.type("penstock topi\tdescr\t--hel\t\n")
        terminal.wait_for("partitions (leader, replicas")  # the help of `topic describe`
    finally:
        terminal.close()


def test_names_of_the_cluster_are_completed(run: Run, environment: dict[str, str], tmp_path: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("no bash here")
    name = f"orders-{uuid.uuid4().hex}"
    run(f"topic create {name}")
    (tmp_path / "script").write_text(run("completion bash").stdout)
    command, load = SHELLS["bash"]
    terminal = Terminal(command, {**environment, "TERM": "xterm", "COLUMNS": "200"}, tmp_path)
    try:
        terminal.type(f"{load}; echo LOAD''ED\n")
        terminal.wait_for("LOADED")
        terminal.type(f"penstock topic describe {name[:14]}\t")
        terminal.wait_for(name)
    finally:
        terminal.close()


def test_a_cluster_that_is_away_completes_nothing_and_says_nothing(environment: dict[str, str]) -> None:
    asked = {
        **environment,
        "_PENSTOCK_COMPLETE": "complete_bash",
        "COMP_WORDS": "penstock topic describe -b 127.0.0.1:1 or",
        "COMP_CWORD": "5",
    }
    done = subprocess.run(["penstock"], env=asked, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_a_shell_without_a_script_is_refused(run: Run) -> None:
    done = run("completion tcsh", check=False)
    assert done.returncode == 2
    assert "bash, zsh and fish" in done.stderr
