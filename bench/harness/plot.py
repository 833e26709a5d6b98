# SPDX-License-Identifier: MIT
"""Pictures of a run, as SVG written by hand: a bar chart for each row, and one overview of all."""
import math
import os
from xml.sax.saxutils import escape

from .report import number
from .rows import SIDES, TITLES

COLOURS = {"weft": "#c0392b", "proto": "#7f8c8d", "go": "#2980b9", "tokio": "#d68910", "boost": "#27ae60", "st": "#8e44ad",
           "uv": "#16a085", "raw": "#34495e"}
WIDTH, LABEL, VALUE = 720, 110, 130  # of the picture, of the names at the left, of the figures at the right
BAR, GAP = 20, 6
LOG_FROM = 12  # largest / smallest: beyond this a linear axis shows the smallest as nothing
STYLE = "text{font:13px sans-serif;fill:#222}.s{font-size:11px;fill:#555}.t{font-weight:bold}"


def _svg(width, height, parts):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:.0f}" viewBox="0 0 {width} {height:.0f}">\n'
            f'<style>{STYLE}</style>\n<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n")


def _text(x, y, text, cls="", anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{cls}" text-anchor="{anchor}">{escape(text)}</text>'


def _rect(x, y, w, h, colour):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" fill="{colour}"/>'


def _line(x1, y1, x2, y2, colour="#ddd"):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


class Axis:
    """From a value to pixels; logarithmic where the values lie far apart, and then from the power of ten below the smallest."""

    def __init__(self, values, start, length):
        positive = [v for v in values if v > 0]
        self.log = len(positive) > 1 and max(positive) / min(positive) > LOG_FROM
        self.start, self.length = start, length
        if self.log:
            self.low = math.floor(math.log10(min(positive)) - 0.05)
            self.high = math.log10(max(positive))
        else:
            self.low, self.high = 0, max(positive, default=1)

    def at(self, v):
        v = math.log10(v) if self.log and v > 0 else self.low if self.log else v
        return self.start + self.length * (v - self.low) / (self.high - self.low)

    def ticks(self):
        return [10.0 ** e for e in range(self.low, math.floor(self.high) + 1)] if self.log else []


def bars(fig, row, sides, remark):
    """One row: a bar for each side that has a figure; None if only weft has none to be compared with."""
    shown = [(s, fig.best(row.name, s)) for s in sides if fig.best(row.name, s) is not None]
    if not shown:
        return None
    axis = Axis([v for _, v in shown], LABEL, WIDTH - LABEL - VALUE)
    top, bottom = 34, 34 + len(shown) * (BAR + GAP)
    parts = [_text(10, 20, f"{row.name}, {row.unit or 'number'}", "t"),
             _text(WIDTH - 10, 20, "smaller is better" + (", logarithmic" if axis.log else ""), "s", "end")]
    for v in axis.ticks():
        parts += [_line(axis.at(v), top - 4, axis.at(v), bottom), _text(axis.at(v), bottom + 12, number(v), "s", "middle")]
    for n, (side, v) in enumerate(shown):
        y, end = top + n * (BAR + GAP), axis.at(v)
        ratio = fig.ratio(row.name, side) if side != "weft" else None
        parts += [_text(LABEL - 8, y + 15, TITLES[side], "t" if side == "weft" else "", "end"),
                  _rect(LABEL, y, max(end - LABEL, 1), BAR, COLOURS[side]),
                  _text(max(end, LABEL + 1) + 6, y + 15, number(v) + (f"  ({number(1 / ratio, 2)}× weft)" if ratio else ""))]
    parts.append(_text(10, bottom + 28, remark, "s"))
    return _svg(WIDTH, bottom + 38, parts)


def overview(fig, sides, remark):
    """Each row a line, each peer a dot where it stands beside weft: right of 1, weft is faster or smaller by so much."""
    peers = [s for s in sides if s != "weft"]
    dots = {}
    for row in fig.rows:
        found = [(s, 1 / fig.ratio(row.name, s)) for s in peers if fig.ratio(row.name, s)]
        if found:
            dots[row.name] = found
    if not dots:
        return None
    label, step, top = 170, 22, 64
    low = min(-1, math.floor(min(math.log10(r) for f in dots.values() for _, r in f)))
    high = max(1, math.ceil(max(math.log10(r) for f in dots.values() for _, r in f)))
    bottom = top + len(dots) * step

    def at(ratio):
        return label + (WIDTH - label - 30) * (math.log10(ratio) - low) / (high - low)

    parts = [_text(10, 20, "How many times weft's figure the others take (right of 1: weft is ahead)", "t")]
    used = [s for s in peers if any(s == x for f in dots.values() for x, _ in f)]
    for n, side in enumerate(used):
        x = label + n * 90
        parts += [f'<circle cx="{x}" cy="38" r="5" fill="{COLOURS[side]}"/>', _text(x + 9, 42, TITLES[side], "s")]
    for e in range(low, high + 1):
        x = at(10.0 ** e)
        parts += [_line(x, top - 6, x, bottom, "#333" if e == 0 else "#ddd"), _text(x, bottom + 14, f"{10.0 ** e:g}×", "s", "middle")]
    for n, (name, found) in enumerate(dots.items()):
        y = top + n * step + step / 2
        parts += [_line(label, y, WIDTH - 30, y, "#f0f0f0"), _text(label - 10, y + 4, name, "", "end")]
        parts += [f'<circle cx="{at(r):.1f}" cy="{y:.1f}" r="5" fill="{COLOURS[s]}" fill-opacity="0.85"/>' for s, r in found]
    parts.append(_text(10, bottom + 34, remark, "s"))
    return _svg(WIDTH, bottom + 44, parts)


def write_all(fig, sides, remark, directory):
    """Writes overview.svg and ROW.svg for each row that was measured; returns how many."""
    os.makedirs(directory, exist_ok=True)
    sides = [s for s in SIDES if s in sides]
    pictures = {"overview": overview(fig, sides, remark)}
    pictures.update({r.name: bars(fig, r, sides, remark) for r in fig.rows})
    written = 0
    for name, svg in pictures.items():
        if svg:
            with open(os.path.join(directory, name + ".svg"), "w", encoding="utf-8") as f:
                f.write(svg)
            written += 1
    return written
