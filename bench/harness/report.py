# SPDX-License-Identifier: MIT
"""From single runs to the table: best, median, spread, ratios, goals."""
import os
import statistics

from .rows import SIDES, TITLES


class Figures:
    """The runs of all rows: samples[(row, side)] is a list of (value, Result, line name)."""

    def __init__(self, rows):
        self.rows = rows
        self.samples = {}
        self.failed = {}  # (row, side): the last reason

    def add(self, row, side, line, result):
        if line in result.lines and result.status == "ok":
            self.samples.setdefault((row.name, side), []).append((result.lines[line][0], result, line))
        else:
            why = result.status if result.status != "ok" else f"no line {line} in its output"
            self.failed[(row.name, side)] = why

    def add_all(self, row, side, line, result):
        """The same for a run that prints several figures for a line, "N.line", in turn with those of the other sides."""
        several = [f"{i}.{line}" for i in range(len(result.lines)) if f"{i}.{line}" in result.lines]
        for name in several or [line]:
            self.add(row, side, name, result)

    def values(self, row_name, side):
        return [v for v, _, _ in self.samples.get((row_name, side), [])]

    def best(self, row_name, side="weft"):
        return min(self.values(row_name, side), default=None)

    def best_run(self, row_name, side):
        runs = self.samples.get((row_name, side))
        return min(runs, key=lambda s: s[0]) if runs else None

    def ratio(self, row_name, side):
        ours, theirs = self.best(row_name), self.best(row_name, side)
        return ours / theirs if ours is not None and theirs else None

    def median_ratio(self, row_name, side):
        ours, theirs = self.values(row_name, "weft"), self.values(row_name, side)
        return statistics.median(ours) / statistics.median(theirs) if ours and theirs else None


    def paired_ratio(self, row_name, side):
        """The median of the ratios of figures that were measured next to each other."""
        pairs = [(a, b) for a, b in zip(self.values(row_name, "weft"), self.values(row_name, side)) if b]
        return statistics.median(a / b for a, b in pairs) if pairs else None


class Goal:
    def __init__(self, row, rule, of, limit):
        self.row, self.rule, self.of, self.limit = row, rule, of, float(limit)

    def measured(self, fig):
        """The number that is held against the limit; None if something for it is missing."""
        if self.rule == "ratio":
            return fig.ratio(self.row, self.of)
        if self.rule == "median":
            return fig.median_ratio(self.row, self.of)
        if self.rule == "paired":
            return fig.paired_ratio(self.row, self.of)
        if self.rule == "middle":
            ours = fig.values(self.row, "weft")
            return statistics.median(ours) if ours else None
        if self.rule == "best":
            return fig.best(self.row)
        if self.rule == "max":
            return max(fig.values(self.row, "weft"), default=None)
        if self.rule == "faster":
            ours, other = fig.best(self.row), fig.best(self.of)
            return other / ours if ours and other else None
        bests = [fig.best(r) for r in self.of.split(",")]
        return max(bests) / min(bests) if all(bests) else None

    def met(self, fig):
        m = self.measured(fig)
        if m is None:
            return None
        return m >= self.limit if self.rule == "faster" else m <= self.limit

    def text(self, fig):
        wish = {
            "ratio": f"≤{self.limit:g}×{TITLES.get(self.of, self.of)}",
            "median": f"median ≤{self.limit:g}×{TITLES.get(self.of, self.of)}'s",
            "paired": f"≤{self.limit:g}×{TITLES.get(self.of, self.of)} in turn",
            "middle": f"median ≤{self.limit:g}",
            "best": f"best ≤{self.limit:g}",
            "max": f"≤{self.limit:g}",
            "faster": f"≥{self.limit:g}× faster than {self.of}",
            "flat": f"flat within {self.limit:g}×",
        }[self.rule]
        m, met = self.measured(fig), self.met(fig)
        return f"{wish} –" if m is None else f"{wish} {'yes' if met else 'NO'} ({number(m)})"


def read_goals(path):
    goals = []
    with open(path, encoding="utf-8") as f:
        for n, line in enumerate(f, 1):
            if line.strip() and not line.startswith("#"):
                parts = line.rstrip("\n").split("\t")
                if len(parts) != 4 or parts[1] not in ("ratio", "median", "paired", "best", "middle", "max", "faster", "flat"):
                    raise SystemExit(f"{path}:{n}: row, rule, of, limit expected")
                goals.append(Goal(*parts))
    return goals


def number(v, digits=3):
    """Short, and never more exact than the measurement."""
    if v is None:
        return "–"
    if v == 0 or abs(v) >= 10 ** (digits - 1):
        return f"{v:.0f}"
    return f"{v:.{digits}g}" if abs(v) >= 0.001 else f"{v:.0e}"


def _times(ratio):
    return f"{ratio:.2f}" if 0.995 <= ratio < 10 else number(ratio, 2)


def _peer_cell(fig, row, side):
    if side not in row.runs:
        return ""
    best = fig.best(row.name, side)
    if best is None:
        return "–"
    ratio = fig.ratio(row.name, side)
    return number(best) + (f" {_times(ratio)}×" if ratio is not None else "")


def _main_line(fig, row, sides, goals):
    ours = fig.values(row.name, "weft")
    cells = [row.name, row.unit]
    if ours:
        mid = statistics.median(ours)
        spread = f"{(max(ours) - min(ours)) / mid * 100:.0f} %" if len(ours) > 1 and mid else ""
        cells += [number(min(ours)), number(mid), spread]
    else:
        cells += ["–", "–", ""]
    cells += [_peer_cell(fig, row, s) for s in sides]
    cells.append("; ".join(g.text(fig) for g in goals if g.row == row.name))
    return cells


def _counter(result, line, kind):
    """The counter of this line, or of the only part of the program that has one."""
    names = [f"{line}.{kind}", *(n for n in result.lines if n.endswith("." + kind))]
    return next((result.lines[n][0] for n in names if n in result.lines), None)


def _cost_line(fig, row, sides):
    """CPU time of the best run of each side; for weft also steals and wakes, since a second thread that did nothing is no speed."""
    run = fig.best_run(row.name, "weft")
    ours, counters = "", ""
    if run:
        _, result, line = run
        steals, wakes = (_counter(result, line, k) for k in ("steals", "wakes"))
        ours = number(result.cpu_ms)
        if steals is not None:
            counters = f"steals {steals:.0f}, wakes {wakes:.0f}"
    cells = ["", "CPU ms", ours, "", ""]
    for s in sides:
        run = fig.best_run(row.name, s)
        cells.append(number(run[1].cpu_ms) if run else "")
    return cells + [counters]


def table(fig, goals, sides):
    """The lines of the table, with a column for each of the sides that has a row here."""
    used = [s for s in SIDES[1:] if s in sides and any(s in r.runs for r in fig.rows)]
    body = [["benchmark", "unit", "weft best", "median", "spread", *(TITLES[s] for s in used), "goals"]]
    shown = set()
    for row in fig.rows:
        body.append(_main_line(fig, row, used, goals))
        command = row.runs["weft"][0]
        if row.workers > 1 and command not in shown and any(fig.best_run(row.name, s) for s in SIDES):
            body.append(_cost_line(fig, row, used))
        shown.add(command)  # rows that read other lines of the same run cost the same
    widths = [max(len(line[i]) for line in body) for i in range(len(body[0]))]
    out = []
    for n, line in enumerate(body):
        cells = [c.ljust(w) if i in (0, 1, len(widths) - 1) else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths))]
        out.append("  ".join(cells).rstrip())
        if n == 0:
            out.append("  ".join("-" * w for w in widths))
    return out


def notes(fig, missing):
    """Why figures are missing."""
    out = [f"–  {TITLES[s]}: {why}" for s, why in missing.items()]
    out += [f"–  {TITLES[s]}, {row}: {why}" for (row, s), why in fig.failed.items() if s not in missing]
    return out


def verdict(fig, goals):
    """(met, missed, not measured) for the goals of the rows that were run."""
    names = {r.name for r in fig.rows}
    results = [g.met(fig) for g in goals if g.row in names]
    return results.count(True), results.count(False), results.count(None)


class Tsv:
    """Every line of every single run, written as it comes, so that an interrupted run leaves what it had."""

    def __init__(self, path, header):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self.f = open(path, "w", encoding="utf-8")
        for h in header:
            self.f.write(f"# {h}\n")
        self.f.write("round\trow\tside\tline\tvalue\tunit\twall_ms\tcpu_ms\tswitches\tstatus\n")

    def add(self, round_no, row, side, result):
        tail = f"{result.wall_ms:.1f}\t{result.cpu_ms:.1f}\t{result.switches}\t{result.status}\n"
        for name, (value, unit) in (result.lines or {"-": (float("nan"), "-")}).items():
            self.f.write(f"{round_no}\t{row.name}\t{side}\t{name}\t{value:g}\t{unit}\t{tail}")
        self.f.flush()
