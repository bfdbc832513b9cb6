"""`python -m penstock.testing.chaos --minutes M --seed S [--folder DIR]`"""

from __future__ import annotations

import argparse
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
    options = parser.parse_args()
    sandboxed = bool(os.environ.get(SANDBOX_VARIABLE))
    if not sandboxed:
        reason = why_no_sandbox()
        if not reason:
            enter_sandbox(sys.argv[1:])
        print(f"without network faults: {reason}", file=sys.stderr)
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
        report = run_chaos(
            options.minutes, options.seed, options.folder.resolve(), sandboxed, options.without, options.only
        )
    else:
        with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
            report = run_chaos(options.minutes, options.seed, Path(folder), sandboxed, options.without, options.only)
    print(f"seed {options.seed}, {options.minutes:g} minutes")
    print("\n".join(report.lines()))
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
