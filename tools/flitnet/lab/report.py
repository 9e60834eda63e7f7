"""The report: one page in HTML, one in Markdown, summary.json; from the Parquet files."""

from __future__ import annotations

import html
import json
import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.flitnet.errors import UsageError
from tools.flitnet.lab.claims import NOTHING, shown
from tools.flitnet.lab.experiment import SEEDS, Experiment, Verdict, judge, ratios, unsettled
from tools.flitnet.lab.figures import draw
from tools.flitnet.lab.live import Pair, curves
from tools.flitnet.lab.live import read as read_live
from tools.flitnet.lab.store import Store, estimates, read_parquet

WORDS = ("reproduced", "differs", "not run", "not built")
SEEDS_SAID = f"at least {len(SEEDS)} seeds a point"
STYLE = (
    "body{font:14px sans-serif;max-width:70em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse}td,th{border:1px solid #bbb;padding:2px 6px;text-align:left}"
    ".reproduced{color:#060}.differs{color:#a00}img{max-width:32em}"
)


@dataclass
class Entry:
    experiment: Experiment
    table: dict
    verdict: Verdict
    version: str
    pictures: list[str]
    live: list[Pair]
    quick: bool  # of a quick run: few points, short
    cost: Cost
    kept: Kept | None = None


@dataclass(frozen=True)
class Cost:
    """Of the runs that no result before it in the report has: time of a core, added up."""

    runs: int = 0
    minutes: float = 0.0

    def text(self) -> str:
        return (
            f"; {self.runs} simulations that no result above has, "
            f"{self.minutes:.1f} minutes of a core"
        )

    @staticmethod
    def read(text: str) -> Cost:
        found = re.search(
            r"; (\d+) simulations that no result above has, ([\d.]+) minutes of a core", text
        )
        return Cost(int(found[1]), float(found[2])) if found else Cost()


@dataclass(frozen=True)
class Kept:
    """A result as an earlier report has it: its sections and its line of summary.json."""

    markdown: str
    html: str
    result: dict[str, str]


def kept(directory: Path) -> dict[str, Kept]:
    """What the report in a directory says, by id, of results that were run."""
    pages = [directory / name for name in ("summary.json", "README.md", "index.html")]
    if not all(page.exists() for page in pages):
        return {}
    try:
        summary, text, page = (page.read_text() for page in pages)
        sections = {part.split("\n", 1)[0]: part for part in text.split("\n## ")[1:]}
        chapters = {part.split("'", 1)[0]: part for part in page.split("<h2 id='")[1:]}
        return {
            one["id"]: Kept(f"## {sections[one['id']].rstrip()}\n\n",
                            f"<h2 id='{chapters[one['id']]}", one)
            for one in json.loads(summary)["results"]
            if one["verdict"] in ("reproduced", "differs")
        }  # fmt: skip
    except (ValueError, TypeError, LookupError):
        raise UsageError(f"--keep: {directory} has no whole report; leave --keep out") from None


def entry(
    experiment: Experiment, store: Store, quick: bool, counted: set[str] | None = None
) -> Entry:
    """Of the full run, if there is one and `quick` does not ask for the other. `counted`: runs
    whose cost another result has named; those of this one join them."""
    quick = quick or not store.parquet(experiment.id, False).exists()
    path = store.parquet(experiment.id, quick)
    rows = read_parquet(path) if path.exists() and not experiment.missing else []
    return of_rows(experiment, store, quick, rows, counted)


def published(experiment: Experiment, store: Store, directory: Path) -> Entry:
    """As a report in a directory has it, by the runs that lie beside it."""
    path = directory / data_name(experiment)
    rows = read_parquet(path) if path.exists() else []
    return of_rows(experiment, store, False, rows)


def data_name(experiment: Experiment) -> str:
    return f"data/{experiment.id}.parquet"


def of_rows(
    experiment: Experiment, store: Store, quick: bool, rows: list[dict],
    counted: set[str] | None = None,
) -> Entry:  # fmt: skip
    table = estimates(rows)
    version = rows[0]["version"] if rows else ""
    both = store.directory / f"{experiment.id}.live.json"
    pairs = read_live(both) if both.exists() else []
    verdict = judge(experiment, table, quick)
    counted = set() if counted is None else counted
    took = {k: s for k, s in store.cpu_seconds(rows).items() if k not in counted}
    counted.update(took)
    # As the page says it, so that a report that is read again has the same sum.
    cost = Cost(len(took), round(sum(took.values()) / 60, 1))
    return Entry(experiment, table, verdict, version, [], pairs, quick, cost)


def ours(one: Entry) -> str:
    """What we found, in a few figures: every plotted measure at its first and last place."""
    parts = []
    for plot in one.experiment.plots:
        for series in dict.fromkeys(point.series for point in one.experiment.points):
            places = sorted(x for s, x, m in one.table if s == series and m == plot.measure)
            values = [f"{x:g}: {shown(one.table[series, x, plot.measure])}" for x in places]
            if values:
                parts.append(f"{plot.measure} {series} {', '.join(values)}")
    return "; ".join(parts)


def write(
    experiments: Sequence[Experiment], store: Store, quick: bool, directory: Path, keep: bool
) -> Path:
    """`keep`: what the report there says of results that this store does not have stays."""
    directory.mkdir(parents=True, exist_ok=True)
    counted: set[str] = set()
    entries = [entry(experiment, store, quick, counted) for experiment in experiments]
    old = kept(directory) if keep else {}
    for one in entries:
        if not one.table and not one.experiment.missing and one.experiment.id in old:
            one.kept = old[one.experiment.id]
            one.verdict = Verdict(one.kept.result["verdict"])
            one.quick = "\nA full run, " not in one.kept.markdown
            one.cost = Cost.read(one.kept.markdown)
    (directory / "data").mkdir(exist_ok=True)
    for one in entries:
        if one.table:
            one.pictures = draw(one.experiment, one.table, directory)
            runs = store.parquet(one.experiment.id, one.quick)
            shutil.copyfile(runs, directory / data_name(one.experiment))
        if one.live:
            one.pictures += draw(*curves(one.experiment, one.live), directory)
    results = [
        one.kept.result if one.kept else
        {"id": one.experiment.id, "verdict": one.verdict.word, "paper": one.experiment.paper,
         "ours": ours(one), "note": one.verdict.note}
        for one in entries
    ]  # fmt: skip
    summary = json.dumps({"results": results}, indent=1, ensure_ascii=False)
    (directory / "summary.json").write_text(summary + "\n")
    there = simulations(entries, directory)
    (directory / "README.md").write_text(markdown(entries, there))
    page = directory / "index.html"
    page.write_text(as_html(entries, there))
    return page


def simulations(entries: Sequence[Entry], directory: Path) -> int:
    """How many different ones the results are made of, by the runs that lie beside the report."""
    found: set[tuple[str, str]] = set()
    for one in entries:
        path = directory / data_name(one.experiment)
        if (one.table or one.kept) and path.exists():
            found |= {(row["version"], row["point"]) for row in read_parquet(path)}
    return len(found)


def heading(entries: Sequence[Entry], there: int) -> str:
    counts = {word: sum(e.verdict.word == word for e in entries) for word in WORDS}
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    ran = [e for e in entries if e.table or e.kept]
    quick = sum(e.quick for e in ran)
    full = len(ran) - quick
    kinds = [f"{full} by full runs"] if full else []
    kinds += [f"{quick} by quick runs: few points, short"] if quick else []
    kind = ", ".join(kinds) or "nothing was run"
    runs = sum(e.cost.runs for e in entries)
    hours = sum(e.cost.minutes for e in entries) / 60
    all_of = "All" if runs == there else f"{runs} of the"
    cost = f" {all_of} {there} simulations took {hours:.2f} hours of a core." if runs else ""
    return f"{len(entries)} results, x.* beyond the papers: {said} ({kind}, {SEEDS_SAID}).{cost}"


def number_rows(one: Entry) -> list[tuple[str, ...]]:
    """Series, place, measure, paper, ours, ratio: tables point by point."""
    found = ratios(one.experiment, one.table)
    rows = []
    for (series, x, measure), theirs in one.experiment.numbers.items():
        key = (series, x, measure)
        if key in found:
            mine = one.table.get(key, NOTHING)
            ratio = "" if math.isnan(found[key]) else f"{found[key]:.2f}"
            rows.append((series, f"{x:g}", measure, f"{theirs:g}", shown(mine), ratio))
    return rows


def value_rows(one: Entry) -> list[tuple[str, ...]]:
    measures = [plot.measure for plot in one.experiment.plots]
    places = list(dict.fromkeys((point.series, point.x) for point in one.experiment.points))
    rows = []
    for series, x in places:
        if any((series, x, m) in one.table for m in measures):
            values = [shown(one.table.get((series, x, m), NOTHING)) for m in measures]
            rows.append((series, f"{x:g}", *values))
    return rows


def reason(one: Entry) -> str:
    """Said only of what differs."""
    text = one.experiment.reason if one.verdict.word == "differs" else ""
    return f"Most likely because {text}" if text else ""


def not_steady(one: Entry) -> str:
    """A claim may hold there all the same; a value is that of runs of this length."""
    places = unsettled(one.experiment, one.table)
    return f"Not steady yet at the end of most runs: {places}." if places else ""


def made_by(one: Entry) -> str:
    cost = one.cost.text() if one.cost.runs else ""
    return f"A {'quick' if one.quick else 'full'} run, simulator {one.version}{cost}."


NUMBER_HEAD = ("series", "at", "measure", "paper", "ours", "ours / paper")


def _md_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines) + "\n\n"


def markdown(entries: Sequence[Entry], there: int) -> str:
    text = f"# Results\n\n{heading(entries, there)}\n\n"
    text += _md_table(("id", "verdict", "paper"), [
        (f"[{e.experiment.id}](#{e.experiment.id.replace('.', '')})", e.verdict.word,
         e.experiment.paper) for e in entries
    ])  # fmt: skip
    for one in entries:
        if one.kept:
            text += one.kept.markdown
            continue
        e = one.experiment
        text += f"## {e.id}\n\n{e.title}. **{one.verdict.word}**\n\nPaper: {e.paper}\n\n"
        if one.verdict.note and not one.verdict.checks:
            text += f"{one.verdict.note}\n\n"
        text += "".join(f"- {'✓' if c.holds else '✗'} {c.text}\n" for c in one.verdict.checks)
        text += "".join(f"- left to full runs: {sentence}\n" for sentence in one.verdict.left)
        text += "\n" if one.verdict.checks else ""
        if why := reason(one):
            text += f"{why}\n\n"
        if where := not_steady(one):
            text += f"{where}\n\n"
        if rows := number_rows(one):
            text += _md_table(NUMBER_HEAD, rows)
        if rows := value_rows(one):
            text += _md_table(("series", e.x_label, *(p.measure for p in e.plots)), rows)
        if one.live:
            text += "On a live cluster of four nodes, beside the same in virtual time:\n\n"
            text += "".join(f"- {pair.text()}\n" for pair in one.live) + "\n"
        text += "".join(f"![{name}]({name})\n" for name in one.pictures)
        if one.version:
            data = data_name(e)
            text += f"\n{made_by(one)} Every run, its configuration and seed: [{data}]({data})\n\n"
        if e.open and one.table:
            text += f"Left open by the paper: {e.open.strip()}\n\n"
    return text


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>\n"

    return "<table>" + line(head, "th") + "".join(line(r, "td") for r in rows) + "</table>\n"


def as_html(entries: Sequence[Entry], there: int) -> str:
    text = (
        f"<!doctype html><meta charset=utf-8><title>flitnet results</title>"
        f"<style>{STYLE}</style><h1>Results</h1><p>{heading(entries, there)}</p>\n<table>"
    )
    for one in entries:
        e, word = one.experiment, one.verdict.word
        text += (f"<tr><td><a href='#{e.id}'>{e.id}</a><td class='{word}'>{word}"
                 f"<td>{html.escape(e.paper)}</tr>\n")  # fmt: skip
    text += "</table>\n"
    for one in entries:
        text += one.kept.html if one.kept else _html_entry(one)
    return text


def _html_entry(one: Entry) -> str:
    e, word = one.experiment, one.verdict.word
    text = f"<h2 id='{e.id}'>{e.id}: {html.escape(e.title)}</h2><p class='{word}'>{word}</p>"
    text += f"<p>Paper: {html.escape(e.paper)}</p>\n"
    if one.verdict.note and not one.verdict.checks:
        text += f"<p>{html.escape(one.verdict.note)}</p>\n"
    checks = "".join(
        f"<li>{'✓' if c.holds else '✗'} {html.escape(c.text)}</li>" for c in one.verdict.checks
    )
    checks += "".join(
        f"<li>left to full runs: {html.escape(sentence)}</li>" for sentence in one.verdict.left
    )
    text += f"<ul>{checks}</ul>\n" if checks else ""
    if one.live:
        rows = "".join(f"<li>{html.escape(pair.text())}</li>" for pair in one.live)
        text += f"<p>On a live cluster of four nodes, beside virtual time:</p><ul>{rows}</ul>\n"
    for said in (reason(one), not_steady(one)):
        text += f"<p>{html.escape(said)}</p>\n" if said else ""
    text += "".join(f"<img src='{name}' alt='{name}'>\n" for name in one.pictures)
    if rows := number_rows(one):
        text += _html_table(NUMBER_HEAD, rows)
    if rows := value_rows(one):
        text += _html_table(("series", e.x_label, *(p.measure for p in e.plots)), rows)
    if one.version:
        data = data_name(e)
        text += f"<p>{made_by(one)} Every run, its configuration and seed: "
        text += f"<a href='{data}'>{data}</a></p>\n"
    if e.open and one.table:
        text += f"<p>Left open by the paper: {html.escape(e.open.strip())}</p>\n"
    return text
