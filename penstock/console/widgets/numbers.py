"""Numbers as people read them, each with its unit; times in the reader's zone."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

NOTHING = "–"
LARGEST = 2**63 - 1


def count(value: float | None) -> str:
    """1234 → 1,234; from a million on 1.23 M."""
    if value is None:
        return NOTHING
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.1f}"


def plural(value: int | None, noun: str) -> str:
    if value is None:
        return NOTHING
    return f"{count(value)} {noun}" if value == 1 else f"{count(value)} {noun}s"


def size(value: float | None) -> tuple[str, str]:
    """(number, unit) of bytes."""
    if value is None:
        return NOTHING, ""
    for limit, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}", unit
    return f"{value:.0f}", "B"


def size_text(value: float | None) -> str:
    return " ".join(size(value)).strip()


def rate_text(value: float | None, unit: str = "rec/s") -> str:
    return NOTHING if value is None else f"{count(value)} {unit}"


def byte_rate_text(value: float | None) -> str:
    return NOTHING if value is None else f"{size_text(value)}/s"


def duration(milliseconds: float | None) -> str:
    """7 d, 90 min, 12 s, 5 ms."""
    if milliseconds is None:
        return NOTHING
    if milliseconds < 0:
        return "for ever"
    for limit, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if milliseconds >= limit:
            return f"{milliseconds / limit:.3g} {unit}"
    return f"{milliseconds:.0f} ms"


def seconds(value: float | None) -> str:
    """A length of time of which whole seconds matter: 0 s, 42 s, 3 min 30 s, 2.5 h."""
    if value is None:
        return NOTHING
    whole = round(value)
    if 120 <= whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{value:.0f} s" if value < 120 else duration(value * 1000)


def setting(key: str, value: str) -> str:
    """A setting's value, with what many milliseconds or bytes amount to: 86400000 (1 d)."""
    unit = next((unit for unit in ("ms", "bytes") if key.endswith((f".{unit}", f"-{unit}", f"_{unit}"))), "")
    try:
        amount = int(value)
    except ValueError:
        return value
    if amount == LARGEST:
        return "no limit"
    if unit == "ms" and amount >= 1000:
        return f"{value} ({duration(amount)})"
    return f"{value} ({size_text(amount)})" if unit == "bytes" and amount >= 1024 else value


def signed(value: int | None) -> str:
    """A change: +1,200, −50, 0."""
    if value is None:
        return NOTHING
    return f"+{count(value)}" if value > 0 else f"−{count(-value)}" if value < 0 else "0"


class Clock:
    """Times as the reader's clock shows them."""

    def __init__(self, zone: str = "UTC") -> None:
        self.zone: tzinfo
        try:
            self.zone, self.name = ZoneInfo(zone), zone
        except (ZoneInfoNotFoundError, ValueError, OSError):
            self.zone, self.name = UTC, "UTC"

    def text(self, at_ms: int | None, *, precise: bool = False) -> str:
        if at_ms is None or at_ms < 0:
            return NOTHING
        try:
            moment = datetime.fromtimestamp(at_ms / 1000, self.zone)
        except (OverflowError, ValueError, OSError):
            return f"{at_ms} ms"  # a producer may write any number
        shown = moment.strftime("%Y-%m-%d %H:%M:%S")
        return f"{shown}.{at_ms % 1000:03d}" if precise else shown

    def brief(self, iso: str) -> str:
        """Today's time, or the day."""
        shown = self.iso_text(iso)
        today = datetime.now(self.zone).strftime("%Y-%m-%d")
        return shown.partition(" ")[2] if shown.startswith(today) else shown[:-3]

    def iso_text(self, iso: str) -> str:
        """A time as the audit log writes it."""
        return self.text(int(datetime.fromisoformat(iso.replace("Z", "+00:00")).timestamp() * 1000))
