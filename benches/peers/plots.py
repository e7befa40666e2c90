"""Bar charts as SVG: a bar for each contestant, its median as the length, least and most as a line over its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from benches.peers.figures import Figure
from benches.peers.table import amount

#: Pixels: of the drawing, of the names before the bars and the numbers behind them, of a bar with its distance.
WIDTH, NAMES, NUMBERS, BAR = 720, 190, 130, 22
OURS, THEIRS = "#0b7285", "#adb5bd"
STYLE = "text{font:12px system-ui,sans-serif;fill:#495057}@media(prefers-color-scheme:dark){text{fill:#ced4da}}"


@dataclass(frozen=True)
class Bar:
    """One contestant."""

    title: str
    figure: Figure
    ours: bool


def chart(title: str, unit: str, bars: Sequence[Bar]) -> str:
    """An SVG with a title above the bars."""
    most = max([bar.figure.most for bar in bars] or [1.0]) or 1.0
    scale = (WIDTH - NAMES - NUMBERS) / most
    height = 34 + BAR * len(bars)
    parts = [f'<text x="0" y="16" font-weight="600">{escape(title)}, {escape(unit)}</text>']
    parts += [_bar(bar, 28 + BAR * number, scale) for number, bar in enumerate(bars)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
    return "\n".join([head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", *parts, "</svg>", ""])


def _bar(bar: Bar, top: int, scale: float) -> str:
    length = max(bar.figure.middle * scale, 1.0)
    least, most = (NAMES + max(value, 0.0) * scale for value in (bar.figure.least, bar.figure.most))
    middle = top + BAR // 2 - 3
    return (
        f'<text x="{NAMES - 8}" y="{middle + 4}" text-anchor="end">{escape(bar.title)}</text>'
        f'<rect x="{NAMES}" y="{top}" width="{length:.1f}" height="{BAR - 6}" fill="{OURS if bar.ours else THEIRS}"/>'
        f'<path d="M{least:.1f} {middle}H{most:.1f}" stroke="#212529"/>'
        f'<text x="{max(most, NAMES + length) + 6:.1f}" y="{middle + 4}">{amount(bar.figure.middle)}</text>'
    )
