"""docs/screenshots/terminal.svg: the README's tour, typed into a real shell against a real broker, drawn by Rich."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich import _export_format
from rich.console import Console
from rich.text import Text

import penstock

TARGET = Path("docs") / "screenshots" / "terminal.svg"
LINES = (
    "penstock topic create orders --partitions 3",
    r"printf 'anna:5 apples\nben:2 pears\nanna:1 plum\n' | penstock produce orders --key-separator :",
    r"penstock consume orders --from-beginning --until-end --group shop --format '%p/%o %k: %s\n'",
    "penstock group describe shop",
    "penstock topic describe orders",
    "penstock doctor",
)


def main() -> None:
    console = Console(record=True, width=104, file=Path(os.devnull).open("w"), force_terminal=True)  # noqa: SIM115
    with penstock.Broker() as broker, tempfile.TemporaryDirectory() as home:
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": home,
            "PENSTOCK_BOOTSTRAP": broker.bootstrap,
            "COLUMNS": "104",
        }
        for line in LINES:
            console.print(Text.assemble(("$ ", "bold green"), (line, "bold")))
            typed = subprocess.run(
                ["bash", "-c", line], env=environment, cwd=home, capture_output=True, text=True, check=False
            )
            console.print(Text.from_ansi((typed.stdout + typed.stderr).rstrip()))
    # Rich would have the picture fetch its font from elsewhere.
    form = re.sub(r"@font-face\s*\{\{.*?\}\}\s*", "", _export_format.CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    TARGET.write_text(console.export_svg(title="penstock", code_format=form, unique_id="terminal"))
    print(TARGET)


if __name__ == "__main__":
    main()
