"""How the console looks: colours, spacing and type, said once. Pages use these names and no colours of their own.

Every colour is a CSS variable with a value for light and one for dark; charts are drawn as SVG with the same
variables, so they follow the theme by themselves.
"""

from __future__ import annotations

from pathlib import Path

STATIC = Path(__file__).parent / "static"
RULES = (STATIC / "console.css", STATIC / "pages.css")

LIGHT = {
    "bg": "#f6f7f9",
    "surface": "#ffffff",
    "sunken": "#eef1f4",
    "line": "#dde2e8",
    "ink": "#17212b",
    "ink-soft": "#4a5968",
    "ink-faint": "#5f6e7d",
    "accent": "#0b6a74",
    "accent-ink": "#ffffff",
    "accent-soft": "#dff1f2",
    "ok": "#1c7a43",
    "ok-soft": "#e0f3e7",
    "warning": "#8a5300",
    "warning-soft": "#fdf0d9",
    "problem": "#b3261e",
    "problem-soft": "#fce8e6",
    "chart-1": "#0b7a85",
    "chart-2": "#b4581c",
    "chart-3": "#5b4bb0",
    "chart-4": "#2e7d46",
    "chart-5": "#a23b72",
    "shadow": "0 1px 2px rgba(16, 30, 45, .06)",
}

DARK = {
    "bg": "#10161c",
    "surface": "#182028",
    "sunken": "#121920",
    "line": "#2b3742",
    "ink": "#e6ecf1",
    "ink-soft": "#b3c0cb",
    "ink-faint": "#93a3b0",
    "accent": "#5cc3cc",
    "accent-ink": "#08262a",
    "accent-soft": "#173a40",
    "ok": "#6fcf97",
    "ok-soft": "#16352390",
    "warning": "#f0b35c",
    "warning-soft": "#3d2e13",
    "problem": "#ff8a80",
    "problem-soft": "#43201e",
    "chart-1": "#5cc3cc",
    "chart-2": "#f2a065",
    "chart-3": "#a99bf5",
    "chart-4": "#7fd09a",
    "chart-5": "#ee8fbe",
    "shadow": "none",
}

CHART_COLOURS = tuple(f"var(--pk-chart-{number})" for number in range(1, 6))


def _variables(colours: dict[str, str]) -> str:
    return " ".join(f"--pk-{name}: {value};" for name, value in colours.items())


def css() -> str:
    """The whole style sheet. A page without scripts (logging in) follows the browser, others the body's class."""
    fonts = (
        '--pk-sans: "Inter", "Segoe UI", system-ui, -apple-system, "Helvetica Neue", Arial, sans-serif; '
        '--pk-mono: ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", Menlo, monospace;'
    )
    return (
        f":root {{ {fonts} {_variables(LIGHT)} color-scheme: light; }}\n"
        f"body.body--dark {{ {_variables(DARK)} color-scheme: dark; }}\n"
        f"@media (prefers-color-scheme: dark) {{ body.pk-login {{ {_variables(DARK)} color-scheme: dark; }} }}\n"
        + "".join(path.read_text() for path in RULES)
    )
