"""The style sheet: whole rules only, and every colour that it names has a value in both themes."""

from __future__ import annotations

import re

from penstock.console import theme


def test_every_rule_is_whole() -> None:
    style = theme.css()
    assert style.count("{") == style.count("}")
    assert not re.search(r"^(<{7}|={7}|>{7})", style, re.MULTILINE)  # what a merge leaves behind hides the next rule


def test_every_colour_has_a_value_in_both_themes() -> None:
    used = set(re.findall(r"var\(--pk-([a-z0-9-]+)\)", theme.css())) - {"sans", "mono"}
    assert used <= theme.LIGHT.keys() and theme.LIGHT.keys() == theme.DARK.keys()
