"""Decorators that give commands their shared options: `@command` for those that talk to a cluster.

    app = new_app("Consumer groups.")

    @command(app, "list")
    def list_groups(session: Session, state: Annotated[str | None, typer.Option(help="…")] = None) -> None: ...

adds --bootstrap, --profile, -X and --json, hands the command its `Session`, and closes that at the end.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from penstock.cli import suggest
from penstock.cli.output import Output
from penstock.cli.session import Session

Bootstrap = Annotated[
    str | None, typer.Option("--bootstrap", "-b", metavar="HOST:PORT", help="Where the cluster is.", show_default=False)
]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        "-p",
        metavar="NAME",
        help="A named cluster.",
        show_default=False,
        autocompletion=suggest.profiles,
    ),
]
Properties = Annotated[
    list[str] | None,
    typer.Option("-X", metavar="NAME=VALUE", help="Any client property; may be repeated.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per line instead of a table.")]


_NAMES = {"Session": Session, "Output": Output}  # commands import these for the type checker only


def new_app(help_text: str, **options: Any) -> typer.Typer:
    """A group of commands that shows its help when called bare."""
    return typer.Typer(
        help=help_text,
        no_args_is_help=options.pop("no_args_is_help", True),
        add_completion=False,
        rich_markup_mode=None,  # plain help: Rich and what it loads would take longer than everything else together
        context_settings={"help_option_names": ["-h", "--help"]},
        **options,
    )


class TopicCommand(TyperCommand):
    """Takes `-t TOPIC` and `--topic TOPIC` for the topic that is its argument: whoever knows kcat types that."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _topics_first(args) if self._takes_a_topic() else args)

    def _takes_a_topic(self) -> bool:
        named = any("-t" in p.opts for p in self.params)
        return not named and any(_is_topic(p) for p in self.params)


def _is_topic(parameter: Any) -> bool:
    return parameter.param_type_name == "argument" and "TOPIC" in str(parameter.metavar or "")


def _topics_first(args: list[str]) -> list[str]:
    topics: list[str] = []
    rest: list[str] = []
    words = iter(args)
    for word in words:
        name, equals, value = word.partition("=")
        if word in ("-t", "--topic"):
            topics += [found] if (found := next(words, None)) is not None else []
        elif name == "--topic" and equals:
            topics.append(value)
        elif word == "--":
            rest += [word, *words]
        else:
            rest.append(word)
    return topics + rest


def _with_options(function: Callable[..., Any], shared: dict[str, Any], call: Callable[..., Any]) -> Callable[..., Any]:
    own = [
        p
        for p in inspect.signature(function, locals=_NAMES, eval_str=True).parameters.values()
        if p.name not in ("session", "output")
    ]
    added = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False if name == "json" else None, annotation=kind
        )
        for name, kind in shared.items()
    ]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + added

    @functools.wraps(function)
    def wrapper(**given: Any) -> Any:
        return call(given)

    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper


def command(
    app: typer.Typer, name: str | None = None, **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A command that talks to a cluster; its first parameter is `session`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(given: dict[str, Any]) -> Any:
            session = Session(given.pop("bootstrap"), given.pop("profile"), given.pop("properties"), given.pop("json"))
            try:
                return function(session=session, **given)
            finally:
                session.close()

        shared = {"bootstrap": Bootstrap, "profile": Profile, "properties": Properties, "json": Json}
        app.command(name, cls=TopicCommand, **options)(_with_options(function, shared, call))
        return function

    return register


def local_command(
    app: typer.Typer, name: str | None = None, **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A command that works on this machine only; its first parameter is `output`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(given: dict[str, Any]) -> Any:
            return function(output=Output(given.pop("json")), **given)

        app.command(name, **options)(_with_options(function, {"json": Json}, call))
        return function

    return register
