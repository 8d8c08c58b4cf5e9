"""Durations, sizes, counts and moments as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def span(seconds: float) -> str:
    """A duration in its two largest units: `2h 30m`, `3d`, `45s`."""
    if seconds < 1:
        return "0s" if seconds < 0.05 else f"{seconds:.1f}s"
    if seconds < 10 and not float(seconds).is_integer():
        return f"{seconds:.1f}s"
    left = round(seconds)
    parts: list[str] = []
    for unit, length in _UNITS:
        many, left = divmod(left, length)
        if many or parts:
            parts.append(f"{many}{unit}" if many else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts))


def size(count: float) -> str:
    """Bytes as people read them."""
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    number = f"{count:.0f}" if count >= 10 or unit == "bytes" else f"{count:.1f}".removesuffix(".0")
    return f"{number} {unit}" if (number, unit) != ("1", "bytes") else "1 byte"


def count(number: int, noun: str) -> str:
    """`1 turn`, `2 turns`."""
    return f"{number} {noun}" + "s" * (number != 1)


def amount(value: float, unit: str) -> str:
    """The value of a limit: its unit says what it is."""
    match unit:
        case "s":
            return span(value)
        case "bytes":
            return size(value)
        case "chars":
            return count(int(value), "character")
        case "usd":
            return f"{value:,.2f} USD" if value else "none"
    return f"{value:g}"


def utc(seconds: float) -> str:
    """A moment for whoever's own zone is not known, e.g. `2031-05-04 09:00 UTC`."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M UTC}"
