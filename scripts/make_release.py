"""`make release VERSION=x.y.z`: checks that everything is ready for a release, builds it, and tags it.

Nothing is uploaded: it ends with the commands that would.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from penstock.base.version import __version__

ROOT = Path(__file__).resolve().parent.parent


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def problems(version: str) -> list[str]:
    """What stands in the way of this release, each with what to do."""
    found = []
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        return [f"{version!r} is no version: make release VERSION=x.y.z"]
    if __version__ != version:
        found.append(f"penstock/base/version.py says {__version__}: set __version__ = {version!r} there")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## {re.escape(version)} — \d{{4}}-\d\d-\d\d$", changelog, re.M):
        found.append(f"CHANGELOG.md has no section `## {version} — YYYY-MM-DD`: write it, with the date of the release")
    if not re.search(rf"^\| {re.escape(version)} \|", (ROOT / "docs/releases.md").read_text(encoding="utf-8"), re.M):
        found.append(f"docs/releases.md has no row for {version}: add it")
    if git("status", "--porcelain"):
        found.append("there are changes that are not committed: commit or drop them")
    if f"v{version}" in git("tag", "--list").split():
        found.append(f"the tag v{version} exists already")
    return found


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("which version? make release VERSION=x.y.z", file=sys.stderr)
        return 2
    version = arguments[0]
    found = problems(version)
    for problem in found:
        print(f"not ready: {problem}", file=sys.stderr)
    if found:
        return 1
    import make_dist

    make_dist.main()
    git("tag", "--annotate", f"v{version}", "--message", f"Penstock {version}")
    print(f"tagged v{version}. Then: git push origin v{version}; twine upload dist/penstock-{version}*")
    print(f"In README.md the install line becomes: pip install 'penstock[all]=={version}'")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
