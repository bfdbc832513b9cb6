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


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_lines_and_words_of_charts_stand_out_in_both_themes() -> None:
    """WCAG: 3 to 1 for what is drawn, 4.5 to 1 for words; neighbouring lines differ from each other."""
    for colours in (theme.LIGHT, theme.DARK):
        lines = [colours[f"chart-{number}"] for number in range(1, 6)]
        assert all(_contrast(line, colours["surface"]) >= 3 for line in lines)
        assert len(set(lines)) == len(lines)
        for ink in ("ink", "ink-soft", "ink-faint"):
            assert _contrast(colours[ink], colours["surface"]) >= 4.5, ink
