"""`penstock completion SHELL`: the script that makes a shell complete commands and options."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.typed import new_app
from penstock.operate.errors import usage_error

app = new_app("Print the completion script of a shell.", no_args_is_help=False)


@app.command()
def completion(shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", show_default=False)]) -> None:
    """Print a completion script: `penstock completion bash > ~/.local/share/bash-completion/completions/penstock`."""
    from typer._completion_shared import get_completion_script

    if shell not in ("bash", "zsh", "fish"):
        raise usage_error(f"no completion for {shell!r}", "there is bash, zsh and fish")
    typer.echo(get_completion_script(prog_name="penstock", complete_var="_PENSTOCK_COMPLETE", shell=shell))
