"""Pieces of a picture that needs nothing else: SVG text, lines and the ticks of an axis. Pure."""

from math import floor, log10
from xml.sax.saxutils import escape

FONT = 'font-family="Helvetica, Arial, sans-serif"'
MIDDLE = 'text-anchor="middle"'
RIGHT_ALIGNED = 'text-anchor="end"'


def canvas(width: int, height: int, parts: list[str]) -> str:
    """Return a picture of a size, on white."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" {FONT} font-size="12" fill="#222">'
    )
    background = f'<rect width="{width}" height="{height}" fill="white"/>'
    return "\n".join([head, background, *parts, "</svg>"]) + "\n"


def text(x: float, y: float, words: str, style: str = "") -> str:
    """Return words at a place."""
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(words)}</text>'


def line(start: tuple[float, float], end: tuple[float, float], style: str) -> str:
    """Return a straight line between two places."""
    (x1, y1), (x2, y2) = start, end
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'


def decimal_step(count: float) -> float:
    """Return a distance between ticks, of 1, 2, 5 or 10 parts, that makes up to ten of a count."""
    power = 10.0 ** floor(log10(count))
    return next(power * part for part in (0.1, 0.2, 0.5, 1.0) if count / (power * part) <= 10)
