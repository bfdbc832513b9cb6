"""Entry of `penstock`: finds the command, and turns what goes wrong into one line and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING, Any

from penstock.base import supervised
from penstock.base.printable import printable
from penstock.base.version import __version__
from penstock.cli.commands import COMMANDS
from penstock.operate.errors import NOBODY, ExitCode, UserError

if TYPE_CHECKING:
    import typer

_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main() -> None:
    _open_what_is_closed()
    supervised.end_with_supervisor()
    sys.exit(run(sys.argv[1:]))


def _open_what_is_closed() -> None:
    """A shell's `>&-` hands us no output at all. The next file or socket would get its number, and be written to.

    What stands in its place refuses to be written, as a full disk does; errors go nowhere. Input stays None."""
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # gets the lowest number that is free: this one
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def overview() -> str:
    """Help of the whole command. Written without Typer: importing that alone takes longer than help may."""
    width = max(len(name) for name in COMMANDS)
    lines = [
        "Usage: penstock COMMAND [OPTIONS]",
        "",
        "A Kafka-compatible commit log with pipelines on Spark.",
        "",
        "Commands:",
    ]
    lines += [f"  {name.ljust(width)}  {summary}" for name, (_, summary) in COMMANDS.items()]
    lines += ["", "`penstock COMMAND --help` tells more. Start with `penstock up`."]
    return "\n".join(lines) + "\n"


def build() -> Any:
    """The whole command tree as a click group whose members are imported when they are asked for."""
    import importlib

    import typer
    from typer.core import TyperGroup

    if "_PENSTOCK_COMPLETE" in os.environ:
        from typer._completion_classes import completion_init

        completion_init()

    class LazyGroup(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return list(COMMANDS)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in COMMANDS:
                return None
            module = importlib.import_module(f"penstock.cli.{COMMANDS[cmd_name][0]}")
            app: typer.Typer = module.app
            built = typer.main.get_command(app)
            built.name = cmd_name
            built.short_help = COMMANDS[cmd_name][1]
            _finish_help(built, cmd_name)
            return built

    root = typer.Typer(
        cls=LazyGroup,
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @root.callback(help="A Kafka-compatible commit log with pipelines on Spark.")
    def penstock() -> None: ...

    return typer.main.get_command(root)


def _finish_help(command: Any, path: str) -> None:
    """Values are named for what they mean, and help ends with the example that docs show and the suite runs."""
    from penstock.cli.examples import example_of

    example = example_of(path)
    if example is not None:
        command.epilog = f"Example:  {example}"
    for parameter in command.params:
        if parameter.metavar is None:
            parameter.metavar = _value_name(parameter)
    for name, child in getattr(command, "commands", {}).items():
        _finish_help(child, f"{path} {name}")


def _value_name(parameter: Any) -> str:
    if getattr(parameter, "is_flag", False):
        return " "  # nothing follows a flag
    if parameter.type.name.startswith(("int", "float")):
        return "N"
    return str(parameter.name).strip("_").upper().replace("_", "-")


def run(arguments: list[str]) -> int:
    """Run one command line; the exit code. Only here are errors turned into text."""
    try:
        known = _known_at_once(arguments)
        if known is not None:
            sys.stdout.write(known)
            sys.stdout.flush()
            return ExitCode.OK
        if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
            raise unknown_command(arguments[0])
        result = build().main(args=arguments, prog_name="penstock", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else ExitCode.OK
    except UserError as error:
        return _complain(error.message, error.hint, error.code)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return _pipe_closed()
    except SystemExit as leaving:
        # Typer turns a closed pipe into exit code 1, and leaves a wrapper behind as its trace.
        if "Pacify" in type(sys.stdout).__name__:
            return _pipe_closed()
        return leaving.code if isinstance(leaving.code, int) else ExitCode.FAILED
    except Exception as error:
        return _from_library(error)


def _known_at_once(arguments: list[str]) -> str | None:
    """What needs no command to be built: help of the whole, and the version."""
    if arguments in ([], ["--help"], ["-h"]) and "_PENSTOCK_COMPLETE" not in os.environ:
        return overview()
    return f"penstock {__version__}\n" if arguments in (["--version"], ["-V"]) else None


def _pipe_closed() -> int:
    """The reader of our pipe has seen enough: not an error."""
    _give_up_output()
    return ExitCode.OK


def _give_up_output() -> None:
    """Keeps the interpreter from meeting the same output again, and complaining, at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _output_refused(error: OSError) -> int:
    """Standard output goes to a disk that is full or broken; what is still buffered cannot be written either."""
    _give_up_output()
    return _complain(
        f"the output could not be written: {error.strerror}", "make room and run it again", ExitCode.FAILED
    )


def unknown_command(name: str) -> UserError:
    import difflib

    close = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
    hint = f"did you mean `penstock {close[0]}`?" if close else "`penstock --help` lists the commands"
    return UserError(f"there is no command {name!r}", hint, ExitCode.USAGE)


def _from_library(error: Exception) -> int:
    """Errors that libraries raise for a user's mistake or an absent cluster; anything else is a bug, and shows."""
    if hasattr(error, "exit_code") and hasattr(error, "format_message"):  # click's usage errors
        context = getattr(error, "ctx", None)
        hint = f"`{context.command_path} --help` tells more" if context is not None else None
        return _complain(error.format_message(), hint, ExitCode(error.exit_code))
    if type(error).__name__ in ("Exit", "Abort"):
        return int(getattr(error, "exit_code", ExitCode.INTERRUPTED))
    from penstock.client.errors import AuthenticationFailed, BrokerUnreachable, ClientError, KafkaError, UnsupportedApi

    if isinstance(error, KafkaError):
        from penstock.operate.admin import refuse

        told = refuse(error.code, error.what, error.detail)
        return _complain(told.message, told.hint, told.code)
    if isinstance(error, AuthenticationFailed):
        hint = "-X NAME=VALUE says how to log in, `penstock profile set` keeps it under a name for -p"
        return _complain(str(error), hint, ExitCode.REFUSED)
    if isinstance(error, UnsupportedApi):
        return _complain(str(error), None, ExitCode.REFUSED)
    if isinstance(error, BrokerUnreachable):
        return _complain(str(error), NOBODY, ExitCode.UNREACHABLE)
    if isinstance(error, ClientError):
        return _complain(str(error), None, ExitCode.UNREACHABLE)
    if type(error).__name__ == "KafkaException":  # of confluent-kafka, which only some commands import
        return _from_librdkafka(error.args[0])
    if isinstance(error, OSError) and error.filename is not None:
        code = ExitCode.NOT_FOUND if isinstance(error, FileNotFoundError) else ExitCode.FAILED
        return _complain(f"{error.filename}: {error.strerror}", None, code)
    if isinstance(error, OSError) and error.errno in _OUTPUT_ERRORS:
        return _output_refused(error)
    if isinstance(error, OSError) and error.errno == errno.EBADF and sys.stdout.name == 1:  # what we have put there
        _give_up_output()
        return _complain("standard output is closed", "send it somewhere: > FILE, or > /dev/null", ExitCode.FAILED)
    raise error


def _from_librdkafka(error: Any) -> int:
    """What its client says outside of a delivery: a property that it does not know, or nobody there."""
    name = error.name()
    if name in ("_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN", "_RESOLVE"):
        return _complain(f"no broker answers: {error.str()}", NOBODY, ExitCode.UNREACHABLE)
    code = ExitCode.USAGE if name in ("_INVALID_ARG", "_CONFLICT") else ExitCode.REFUSED
    return _complain(error.str(), f"the client says {name}", code)


def _complain(message: str, hint: str | None, code: int) -> int:
    try:
        sys.stdout.flush()
    except OSError:
        _give_up_output()  # the complaint is what counts
    sys.stderr.write(printable(f"penstock: {message}\n" + (f"  {hint}\n" if hint else "")))
    return code


if __name__ == "__main__":
    main()
