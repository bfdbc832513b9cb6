"""`python -m penstock.testing.chaos --minutes M --seed S [--secure] [--folder DIR]`"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from pathlib import Path

from penstock.testing.chaos.hosts import SANDBOX_VARIABLE, enter_sandbox, why_no_sandbox
from penstock.testing.chaos.run import run_chaos


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.testing.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="how long faults are injected")
    parser.add_argument("--seed", type=int, default=1, help="chooses the faults")
    parser.add_argument("--folder", type=Path, help="where to keep data and logs (default: a temporary folder)")
    parser.add_argument("--without", action="append", default=[], metavar="FAULT", help="leave out, e.g. 'disk full'")
    parser.add_argument("--only", metavar="FAULT", help="this fault and no other")
    parser.add_argument(
        "--secure", action="store_true", help="SASL_SSL for brokers and clients, TLS and SASL to ZooKeeper"
    )
    parser.add_argument("--wide", type=int, default=0, metavar="N", help="a topic of N partitions beside the others")
    parser.add_argument("--right-is-enough", action="store_true", help="silences are told, not judged")
    options = parser.parse_args()
    sandboxed = bool(os.environ.get(SANDBOX_VARIABLE))
    if not sandboxed:
        reason = why_no_sandbox()
        if not reason:
            enter_sandbox(sys.argv[1:])
        print(f"without network faults: {reason}", file=sys.stderr)
    with contextlib.ExitStack() as until_the_end:
        if options.folder is None:
            temporary = tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True)
            options.folder = Path(until_the_end.enter_context(temporary))
        options.folder.mkdir(parents=True, exist_ok=True)
        report = run_chaos(
            options.minutes,
            options.seed,
            options.folder.resolve(),
            sandboxed,
            options.without,
            options.only,
            secure=options.secure,
            wide=options.wide,
        )
    print(f"seed {options.seed}, {options.minutes:g} minutes{', with SASL_SSL' if options.secure else ''}")
    print("\n".join(report.lines()))
    return 0 if report.good or (options.right_is_enough and report.is_right) else 1


if __name__ == "__main__":
    sys.exit(main())
