"""Draws the figure of an experiment, and makes the page of all results."""
import base64
import html
import json
import os

import machine

# Colours of Okabe and Ito, which people with any kind of colour-blindness can tell apart. Hatches,
# markers and dashes tell the same series apart in grey.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#F0E442")
HATCHES = ("", "//", "..", "xx", "\\\\", "oo", "--", "++")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", ":", "-", "--", "-.", ":")


def number(value, interval):
    """Returns a value as the page shows it: with its interval, if it has one."""
    if interval is None:
        return f"{value:.4g}"
    return f"{value:.4g} ({interval[0]:.4g} to {interval[1]:.4g})"


def error_bars(found):
    """Returns the lengths below and above the mean, as matplotlib wants them."""
    below, above = [], []
    for one in found:
        low, high = one["interval"] or (one["mean"], one["mean"])
        below.append(max(0.0, one["mean"] - low))
        above.append(max(0.0, high - one["mean"]))
    return [below, above]


def draw_measure(axis, e, figures, measure):
    rule, many = e["measure"][measure], len(e["series"])
    names = [p["name"] for p in e["points"]]
    for i, series in enumerate(e["series"]):
        here = [(j, figures.estimate(measure, series["name"], name))
                for j, name in enumerate(names)]
        here = [(j, found) for j, found in here if found]
        if not here:
            continue
        heights = [found["mean"] for _, found in here]
        errors = error_bars([found for _, found in here])
        n = i % len(COLOURS)
        if e["figure"]["kind"] == "bars":
            at = [j + (i - (many - 1) / 2) * 0.8 / many for j, _ in here]
            axis.bar(at, heights, 0.8 / many, yerr=errors, capsize=2, color=COLOURS[n],
                     hatch=HATCHES[n], edgecolor="black", linewidth=0.5, label=series["name"])
        else:
            axis.errorbar([j for j, _ in here], heights, yerr=errors, capsize=2, color=COLOURS[n],
                          marker=MARKERS[n], linestyle=DASHES[n], label=series["name"])
    axis.set_xticks(range(len(names)), names, rotation=20 * (len(" ".join(names)) > 40))
    axis.set_xlabel(e["figure"]["x"])
    axis.set_ylabel(f"{rule['title']} ({rule['unit']})", fontsize="small")
    if e["figure"].get("log"):
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0)


def front(places):
    """Returns those of [(name, x, y)] that no other one beats in both, by x. Less is better."""
    best, found = float("inf"), []
    for place in sorted(places, key=lambda p: (p[1], p[2])):
        if place[2] < best:
            best = place[2]
            found.append(place)
    return found


def draw_pareto(plt, e, figures):
    """Returns a figure with a field for each point of the experiment. In it each series is a mark
    at its two measures, and a line joins those that no other one beats in both."""
    many = len(e["points"])
    rows = (many + 3) // 4
    fig, axes = plt.subplots(rows, min(many, 4), figsize=(13, 3.2 * rows), squeeze=False)
    x, y = e["figure"]["measures"][:2]
    for axis, point in zip(axes.flat, e["points"]):
        places = []
        for i, series in enumerate(e["series"]):
            found = [figures.estimate(m, series["name"], point["name"]) for m in (x, y)]
            if not all(found):
                continue
            n = i % len(COLOURS)
            axis.errorbar(found[0]["mean"], found[1]["mean"], xerr=error_bars(found[:1]),
                          yerr=error_bars(found[1:]), marker=MARKERS[n], color=COLOURS[n],
                          linestyle="none", capsize=2, label=series["name"])
            places.append((series["name"], found[0]["mean"], found[1]["mean"]))
        best = front(places)
        axis.step([p[1] for p in best], [p[2] for p in best], where="post", color="grey",
                  linewidth=0.8, zorder=0)
        axis.set_title(f"{e['figure']['x']}: {point['name']}", fontsize="small")
        axis.set_xscale("log")
        axis.set_ylim(bottom=0)
    for axis in axes[-1]:
        axis.set_xlabel(f"{e['measure'][x]['title']} ({e['measure'][x]['unit']})", fontsize="small")
    for axis in axes[:, 0]:
        axis.set_ylabel(f"{e['measure'][y]['title']} ({e['measure'][y]['unit']})", fontsize="small")
    return fig, axes


def draw_measures(plt, e, figures):
    """Returns a figure with a field for each measure: up to three beside each other, and more in
    two columns."""
    measures = e["figure"]["measures"]
    columns = len(measures) if len(measures) <= 3 else 2
    rows = (len(measures) + columns - 1) // columns
    fig, axes = plt.subplots(rows, columns, figsize=(1 + 4.5 * columns, 4 * rows), squeeze=False)
    for axis, measure in zip(axes.flat, measures):
        draw_measure(axis, e, figures, measure)
    for axis in list(axes.flat)[len(measures):]:
        axis.remove()
    return fig, axes


def draw(e, figures, where):
    """Writes figure.svg and figure.png into a directory. The same figures give the same bytes."""
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "takt"
    import matplotlib.pyplot as plt
    if e["figure"]["kind"] == "pareto":
        fig, axes = draw_pareto(plt, e, figures)
    else:
        fig, axes = draw_measures(plt, e, figures)
    if len(e["series"]) > 1:
        fig.legend(*axes[0][0].get_legend_handles_labels(), loc="upper center",
                   bbox_to_anchor=(0.5, 0.02), ncol=4, fontsize="small")
    fig.suptitle(f"{e['paper']}, {e['result']}, repeated in {e['platform']}", fontsize="medium")
    fig.tight_layout()
    fig.savefig(os.path.join(where, "figure.svg"), metadata={"Date": None}, bbox_inches="tight")
    fig.savefig(os.path.join(where, "figure.png"), dpi=110, metadata={"Software": None},
                bbox_inches="tight")
    plt.close(fig)


PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>TITLE</title>
<style>
body { font: 15px/1.4 sans-serif; margin: 2em; max-width: 1300px; color: #111; background: #fff; }
table { border-collapse: collapse; width: 100%; }
th, td { border: 1px solid #bbb; padding: 4px 7px; text-align: left; vertical-align: top; }
th button { font: inherit; font-weight: bold; border: 0; background: none; cursor: pointer; }
pre { background: #f3f3f3; padding: 8px; overflow: auto; }
.results img { max-width: 100%; height: auto; }
.verdict { font-weight: bold; white-space: nowrap; }
</style></head><body>
<h1>TITLE</h1>
ABOUT
<p><label>Paper <select id="paper"><option value="">all</option></select></label>
<label>Verdict <select id="verdict"><option value="">all</option></select></label>
<label>Word <input id="word" type="search"></label> <span id="count"></span></p>
<table class="results"><thead><tr>
HEADS
</tr></thead><tbody>
ROWS
</tbody></table>
<script>
"use strict";
const body = document.querySelector(".results tbody");
const rows = [...body.rows];
for (const key of ["paper", "verdict"]) {
  const select = document.getElementById(key);
  for (const value of [...new Set(rows.map(r => r.dataset[key]))].sort())
    select.add(new Option(value, value));
  select.addEventListener("change", show);
}
document.getElementById("word").addEventListener("input", show);
function show() {
  const paper = document.getElementById("paper").value;
  const verdict = document.getElementById("verdict").value;
  const word = document.getElementById("word").value.toLowerCase();
  let shown = 0;
  for (const row of rows) {
    row.hidden = (paper && row.dataset.paper !== paper)
      || (verdict && row.dataset.verdict !== verdict)
      || !row.textContent.toLowerCase().includes(word);
    if (!row.hidden) shown++;
  }
  document.getElementById("count").textContent = shown + " of " + rows.length + " results";
}
let last = -1, direction = 1;
document.querySelectorAll("th button").forEach((button, column) => {
  button.addEventListener("click", () => {
    direction = 1;
    if (column === last) direction = -1;
    last = column;
    if (direction === -1) last = -1;
    const text = row => row.cells[column].textContent.trim();
    rows.sort((a, b) => direction * text(a).localeCompare(text(b), "en", { numeric: true }));
    body.append(...rows);
  });
});
show();
</script></body></html>
"""
ALL = ("Results of five papers, repeated on Takt", """\
<p>Each row is one result of a paper, and a command that measures it here. A value is the mean of
all seeds; behind it, in parentheses, is the 95 % bootstrap interval of the mean, where runs
differ. The verdict compares with conditions that were taken from the paper's text. If an interval
reaches both sides of a condition, or the system never settles, the verdict is <em>undecided</em>.
The platform <em>sim</em> has models of guests and no devices, and <em>whole</em> runs real guests.
Both show shapes, and not the papers' absolute figures.</p>
<p>What the mechanisms of all five papers do on the same workloads is on
<a href="together.html">a page of its own</a>.</p>""")
TOGETHER = ("Five papers on the same workloads", """\
<p>No paper shows these results. In the first one the mechanisms of all five papers meet on one
workload. Then follow eight mixes from mostly computing to mostly I/O, what each policy pays for
its tail latency, extensions that the authors named, and how far results depend on one number, such
as the slice. They have no conditions, so there is no verdict.</p>
<p><a href="index.html">The papers' own results</a></p>""")
FIRST = ("together/five", "together/mixes", "together/pareto")
HEADS = ("Paper", "Result", "Claim", "What we got", "Platform", "Verdict")


def picture(where):
    """Returns the figure as an element with all its data, or "" if there is none."""
    path = os.path.join(where, "figure.svg")
    if not os.path.exists(path):
        return ""
    with open(path, "rb") as f:
        data = base64.b64encode(f.read()).decode("ascii")
    return f'<img alt="figure" src="data:image/svg+xml;base64,{data}">'


def vm_files(where):
    """Returns the VM files of a result, one for each set-up, as an element that can be opened."""
    path = os.path.join(where, "runs.jsonl")
    if not os.path.exists(path):
        return ""
    texts, seen = [], set()
    with open(path, encoding="utf-8") as f:
        for line in f:
            run = json.loads(line)
            if run["vm_file"] in seen:
                continue
            seen.add(run["vm_file"])
            file = os.path.join(machine.ROOT, run["vm_file"])
            with open(file, encoding="utf-8") as vms:
                texts.append(f"# {run['series']}, {run['point']}: {run['command']}\n{vms.read()}")
    return "<details><summary>VM files and commands</summary><pre>" + html.escape(
        "\n".join(texts)) + "</pre></details>"


def values(row):
    """Returns the table of all values of a result."""
    lines = []
    for key, value in row["values"].items():
        lines.append(f"<tr><td>{html.escape(key)}</td>"
                     f"<td>{html.escape(number(value, row['interval'][key]))}</td></tr>")
    if not lines:
        return ""
    return ("<details><summary>all values</summary><table>" + "".join(lines)
            + "</table></details>")


def conditions(row):
    lines = [f"<li><b>{c['state']}</b>: {html.escape(c['says'])} (section {c['section']}): "
             f"{html.escape(c['found'])}</li>" for c in row.get("conditions", ())]
    return "<ul>" + "".join(lines) + "</ul>" if lines else ""


def provenance(row):
    if not row["seeds"]:
        return ""
    warm_up = sorted(set(row["warm_up_s"].values()))
    return (f"<p>{html.escape(row['model'])} Seeds {row['seeds'][0]} to {row['seeds'][-1]}, "
            f"{row['seconds']} s each after a warm-up of {', '.join(f'{w:g}' for w in warm_up)} s; "
            f"commit {', '.join(row['commits'])}.</p>"
            f"<pre>{html.escape(row['command'])}</pre>")


def table_row(row, results):
    where = os.path.join(results, row["id"])
    cells = [html.escape(row["paper"]),
             f"{html.escape(row['result'])}<br><small>{html.escape(row['id'])}</small>",
             f"{html.escape(row['claim'])} <small>(section {html.escape(row['section'])})</small>",
             picture(where) + conditions(row) + values(row) + vm_files(where) + provenance(row),
             html.escape(row["platform"]),
             f'<span class="verdict">{row["verdict"]}</span><br>{html.escape(row["why"])}']
    return (f'<tr data-paper="{html.escape(row["paper"])}" data-verdict="{row["verdict"]}">'
            + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")


def write_page(path, page, rows, results):
    title, about = page
    heads = "".join(f'<th><button type="button">{head}</button></th>' for head in HEADS)
    text = PAGE.replace("TITLE", title).replace("ABOUT", about).replace("HEADS", heads).replace(
        "ROWS", "\n".join(table_row(row, results) for row in rows))
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def write(rows, results, where):
    """Writes two pages into a directory, each of which needs no other file: index.html with all
    results, and together.html with those that no paper has."""
    write_page(os.path.join(where, "index.html"), ALL, rows, results)
    beyond = [row for row in rows if row["id"].startswith("together/")]
    beyond.sort(key=lambda row: FIRST.index(row["id"]) if row["id"] in FIRST else len(FIRST))
    write_page(os.path.join(where, "together.html"), TOGETHER, beyond, results)
