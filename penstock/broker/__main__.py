"""`python -m penstock.broker --config FILE --set NAME=VALUE`: what `penstock broker` runs, without the CLI."""

from __future__ import annotations

import argparse
import sys

from penstock.base.settings import Settings, SettingsError
from penstock.broker.server import EXIT_CANNOT_START, run


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.broker")
    parser.add_argument("--config", help="a file in Kafka's server.properties format")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting; may be repeated")
    given = parser.parse_args(arguments)
    overrides: dict[str, str] = {}
    for entry in given.set:
        name, separator, value = entry.partition("=")
        if not separator:
            parser.error(f"--set {entry}: expected NAME=VALUE")
        overrides[name] = value
    try:
        settings = Settings.load(given.config, overrides)
    except (SettingsError, OSError) as error:
        print(f"penstock: {error}", file=sys.stderr)
        return EXIT_CANNOT_START
    return run(settings)


if __name__ == "__main__":
    sys.exit(main())
