"""What others named is shown so that it neither steers a terminal nor turns the reading direction."""

from __future__ import annotations

from penstock.base.printable import printable, printable_cell


def test_controls_and_direction_marks_are_written_out() -> None:
    assert printable_cell("\x1b[31m\x9b\u202ea\u2066\x7f") == "\\x1b[31m\\x9b\\u202ea\\u2066\\x7f"
    assert printable_cell("\u200e\u200f\u061c\u2069") == "\\u200e\\u200f\\u061c\\u2069"
    assert printable_cell("a\tb\nc\rd") == "a\\tb\\nc\\rd"
    assert printable("a\tb\nc\rd") == "a\tb\nc\\rd"


def test_what_people_write_stays() -> None:
    text = "Zoë \u05e9\u05dc\u05d5\u05dd \u4e2d\u6587 \U0001f600 \u200d"
    assert printable_cell(text) == printable(text) == text
