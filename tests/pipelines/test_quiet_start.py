"""Spark starts without a word: what a user sees of `penstock sql` is the answer."""

from __future__ import annotations

import subprocess
import sys


def test_a_session_of_its_own_starts_and_answers_silently() -> None:
    start = "from penstock.pipelines.spark.session import session"
    code = f"{start}\nprint(session('quiet', log_level='off').range(3).count())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("3\n", "")
