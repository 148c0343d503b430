"""tools/papers.py: the papers' results by one command. Nothing here boots a machine."""
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import ROOT

sys.path.insert(0, os.path.join(ROOT, "tools"))
import paperreport  # noqa: E402
import papers  # noqa: E402
import paperstats  # noqa: E402
import tracestream  # noqa: E402
from paperstats import BROKEN, HOLDS, OPEN  # noqa: E402

MANY_ARGS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
             "--window-size=1400,1000")


def needs(group):
    """Skips the test if something is missing that tools/deps.sh would install for the group."""
    said = subprocess.run([os.path.join(ROOT, "tools", "deps.sh"), "--print", *group.split()],
                          capture_output=True, text=True, check=False).stdout
    missing = " ".join(re.findall(r"^  (\S+) ", said, re.M))
    if missing:
        pytest.skip(f"{missing} is not installed (tools/deps.sh {group} installs it)")


# ---- statistics ----

def test_runs_that_gave_one_value_have_no_interval():
    assert paperstats.interval([3.0, 3.0, 3.0], paperstats.mean) is None
    assert paperstats.interval([3.0], paperstats.mean) is None


def test_the_interval_is_around_the_mean_and_repeats():
    rows = [1.0, 2.0, 3.0, 4.0, 10.0]
    low, high = paperstats.interval(rows, paperstats.mean)
    assert 1 <= low < 4 < high <= 10
    assert (low, high) == paperstats.interval(rows, paperstats.mean)


def test_an_interval_on_both_sides_of_a_bound_decides_nothing():
    rows = [0.8, 1.0, 1.2]
    assert paperstats.judge(rows, paperstats.mean, 0.5, None)[0] == HOLDS
    assert paperstats.judge(rows, paperstats.mean, 1.5, None)[0] == BROKEN
    assert paperstats.judge(rows, paperstats.mean, 1.0, None)[0] == OPEN
    assert paperstats.judge(rows, paperstats.mean, None, 0.5)[0] == BROKEN
    assert paperstats.judge(rows, paperstats.mean, None, 1.0)[0] == OPEN


def figures(**series):
    """series: of each point a list of values, one for each seed."""
    made = paperstats.Figures()
    for name, points in series.items():
        for point, values in enumerate(points):
            for seed, value in enumerate(values):
                made.add(name, str(point), seed, {"m": value})
    return made


def test_a_ratio_is_of_runs_of_the_same_seed():
    """Each seed doubles; the seeds differ a lot. Without pairs the interval would be wide."""
    made = figures(a=[[2, 20, 200]], b=[[1, 10, 100]])
    condition = {"says": "", "section": "", "at_least": 1.9, "at_most": 2.1,
                 "value": {"measure": "m", "series": "a", "point": "0"},
                 "over": {"measure": "m", "series": "b", "point": "0"}}
    assert paperstats.check(condition, made, ["0"])["state"] == HOLDS


@pytest.mark.parametrize("points,state", [
    ([[1, 2], [3, 4], [5, 6]], HOLDS),
    ([[1, 2], [5, 6], [3, 4]], BROKEN),
    ([[1, 2], [0, 4], [5, 6]], OPEN),
])
def test_order(points, state):
    condition = {"says": "", "section": "", "measure": "m", "series": "s", "order": "rises"}
    assert paperstats.check(condition, figures(s=points), ["0", "1", "2"])["state"] == state


def test_what_was_not_measured_decides_nothing():
    condition = {"says": "", "section": "", "at_least": 0,
                 "value": {"measure": "m", "series": "a", "point": "0"}}
    assert paperstats.check(condition, paperstats.Figures(), ["0"])["state"] == OPEN


def test_verdicts():
    def of(*states):
        return paperstats.verdict([{"says": "x", "found": "y", "state": s} for s in states], [])[0]

    assert of(HOLDS, HOLDS) == "shape holds"
    assert of(HOLDS, OPEN) == "undecided"
    assert of(OPEN, BROKEN) == "differs"
    assert of() == "no claim"
    said = paperstats.verdict([{"says": "x", "found": "y", "state": HOLDS}], ["it never settles"])
    assert said == ("undecided", "it never settles")


# ---- experiment files ----

def test_a_result_that_differs_says_why_or_that_nobody_has():
    known, unknown = {"remark": "The link is slower."}, {}
    assert papers.remark(known, "differs") == ". The link is slower."
    assert papers.remark(known, "shape holds") == papers.remark(unknown, "undecided") == ""
    assert "no remark yet" in papers.remark(unknown, "differs")


def test_a_template_is_filled_in():
    e = {"id": "p/x", "vms": "a {one}\n{vm}", "blocks": {"vm": "[{i}] {one}"},
         "defaults": {"one": "default"}}
    text = papers.filled(e, {"name": "s", "one": "series"}, {"name": "p", "vm": 2})
    assert text == "a series\n[1] series\n[2] series"
    with pytest.raises(papers.Refused, match="nothing says what {vm} is at s, p"):
        papers.filled(e, {"name": "s"}, {"name": "p"})


def test_a_script_is_filled_in(tmp_path, monkeypatch):
    monkeypatch.setattr(papers, "RESULTS", str(tmp_path))
    first = papers.plan(papers.read("together/extension-buffers"), quick=True)[0]
    with open(os.path.join(first, "task.json"), encoding="utf-8") as f:
        assert json.load(f)["script"].split("\n")[0].endswith("/io/tune/net/rcvbuf 65536")


def test_what_a_guest_said_is_a_value():
    found = {"said": [{"vm": "a", "text": "tcp 10 bytes in 5 ns"},
                      {"vm": "a", "text": "tcp 30 bytes in 10 ns"},
                      {"vm": "b", "text": "tcp 1 bytes in 1 ns"}]}
    rule = {"vm": "a", "said": r"tcp (\d+) bytes in (\d+) ns", "scale": 2}
    assert papers.value_of(rule, found) == 6
    with pytest.raises(papers.Refused, match="b has not said 'udp"):
        papers.value_of({"vm": "b", "said": r"udp (\d+)"}, found)


def test_what_several_guests_said_is_one_value():
    found = {"said": [{"vm": "s-1", "text": "got 10"}, {"vm": "s-1", "text": "got 30"},
                      {"vm": "s-2", "text": "got 5"}, {"vm": None, "text": "got 100"}]}
    rule = {"vm": "s-*", "said": r"got (\d+)"}
    assert papers.value_of(rule, found) == 35
    assert papers.value_of({**rule, "reduce": "min"}, found) == 5
    assert papers.value_of({**rule, "from": 100}, found) == 65
    with pytest.raises(papers.Refused, match="divides by it"):
        papers.value_of({"vm": "s-2", "said": r"(\d+) in (\d+)"},
                        {"said": [{"vm": "s-2", "text": "1 in 0"}]})


def test_a_guest_that_does_not_come_to_its_end_is_missed():
    """Otherwise the mean of all would be that of those that were quick enough."""
    found = {"file_vms": ["other", "s-1", "s-2"], "said": [{"vm": "s-1", "text": "took 10"}]}
    rule = {"vm": "s-*", "said": r"took (\d+)"}
    with pytest.raises(papers.Refused, match="s-2 has not said 'took"):
        papers.value_of(rule, found)
    assert papers.value_of({**rule, "absent": 0}, found) == 10
    assert papers.value_of(rule, {**found, "file_vms": ["other", "s-1"]}) == 10


def test_what_guests_did_together_is_a_value():
    """A VM that did much counts more than one that did little, but quickly."""
    found = {"said": [{"vm": "s-1", "text": "took 10"}, {"vm": "s-1", "text": "wrote 100"},
                      {"vm": "s-2", "text": "took 1"}, {"vm": "s-2", "text": "wrote 54"}]}
    rule = {"vm": "s-*", "said": r"wrote (\d+)", "per": r"took (\d+)", "scale": 2}
    assert papers.value_of(rule, found) == 28
    assert papers.value_of({**rule, "vm": "t", "absent": 0}, found) == 0
    with pytest.raises(papers.Refused, match="has not said 'needed"):
        papers.value_of({**rule, "per": r"needed (\d+)"}, found)


def test_what_events_wait_is_a_value():
    rows = [{"direction": "to", "to": "iodom", "waited_us": 3000, "mb": 2},
            {"direction": "from", "to": "s-1", "waited_us": 8000, "mb": 1},
            {"direction": "from", "to": "s-2", "waited_us": 1000, "mb": 3},
            {"direction": "from", "to": "sink", "waited_us": 9000, "mb": 5}]
    assert papers.value_of({"waits": "to", "scale": 2}, {"waits": rows}) == 3
    assert papers.value_of({"waits": "from"}, {"waits": rows}) == 2


def test_what_events_wait_is_of_the_vms_that_a_measure_names():
    """Neither the waits nor the bytes of others count: they may stand for another machine."""
    rows = [{"direction": "from", "to": "s-1", "waited_us": 8000, "mb": 1},
            {"direction": "from", "to": "s-2", "waited_us": 1000, "mb": 3},
            {"direction": "from", "to": "sink", "waited_us": 9000, "mb": 5}]
    assert papers.value_of({"waits": "from", "vm": "s-*"}, {"waits": rows}) == 2.25
    with pytest.raises(papers.Refused, match="no VM that took events is named as t-"):
        papers.value_of({"waits": "from", "vm": "t-*"}, {"waits": rows})


def test_events_before_the_traffic_are_not_waits(monkeypatch):
    """A VM that starts waits for a slice of others, and nothing is carried yet."""
    vm = 2 << 16
    trace = tracestream.Trace()
    trace.vms[2] = ("s", 1)
    trace.records = [tracestream.Record(at * 1_000_000, tracestream.EVTCHN_TAKE, 0, vm, 1, ns, 0, 0)
                     for at, ns in ((499, 30_000_000), (500, 2_000_000), (900, 4_000_000))]
    monkeypatch.setattr(tracestream, "load", lambda _: trace)
    said = [{"vm": "iodom", "text": "iodom: s.0: in=1 in_bytes=1048576 out=1 out_bytes=1048576"}]
    rows = papers.event_waits("trace", said, 500)
    assert papers.value_of({"waits": "from"}, {"waits": rows}) == 3


def test_how_busy_pcpus_are_is_a_value():
    """Those that do not belong to the measure do not count."""
    found = {"pcpus": [{"busy_s": 0, "idle_s": 8}, {"busy_s": 8, "idle_s": 0},
                       {"busy_s": 2, "idle_s": 6}]}
    assert papers.value_of({"busy": [1, 2]}, found) == 62.5
    assert papers.value_of({"busy": [2, 2], "scale": 0.01}, found) == 0.25
    with pytest.raises(papers.Refused, match="there are 3 pCPUs, so there is no pCPU 3"):
        papers.value_of({"busy": [1, 3]}, found)


def test_quick_leaves_out_what_takes_long(monkeypatch, capsys):
    """But not if somebody names it."""
    pytest.importorskip("jsonschema")
    planned = []
    monkeypatch.setattr(papers, "plan", lambda e, quick: planned.append(e["id"]) or [])
    monkeypatch.setattr(papers, "snakemake", lambda *_: True)
    monkeypatch.setattr(papers, "finish", lambda *_: "no claim")
    slow = "together/sensitive-slice"
    assert run("run", "--quick") == 0 and "together/mixes" in planned and slow not in planned
    assert run("run", "--quick", slow) == 0 and slow in planned


def test_a_scale_may_be_a_word():
    e = {"id": "p/x", "measure": {"m": {"scale": "part"}}}
    assert papers.measures_of(e, {"part": 0.5, "name": "s"})["m"]["scale"] == 0.5
    with pytest.raises(papers.Refused, match="nothing says which number part is"):
        papers.measures_of(e, {"name": "s"})


def test_the_front_has_what_nobody_beats():
    places = [("a", 1, 9), ("b", 2, 5), ("c", 2, 7), ("d", 3, 5), ("e", 4, 1)]
    assert [name for name, _, _ in paperreport.front(places)] == ["a", "b", "e"]


def test_each_experiment_is_as_the_schema_says():
    pytest.importorskip("jsonschema")
    for name in papers.names():
        e = papers.read(name)
        for series in e["series"]:
            for point in e["points"]:
                papers.filled(e, series, point)
    assert len(papers.names()) > 5
    assert papers.unmeasured()


@pytest.mark.parametrize("name", [name for name in papers.names()
                                  if papers.read(name)["platform"] == "whole"])
def test_each_device_is_of_a_driver_domain(name):
    """In the VM file of each set-up, a VM is called as each device's back end."""
    e = papers.read(name)
    for series, point, _, _ in papers.setups(e, quick=True):
        text = papers.filled(e, series, point)
        vms = re.findall(r"(?m)^\[vm (\S+)\]", text)
        for back in re.findall(r"(?m)^(?:net|disk|rng) = (\S+)", text):
            assert back in vms, f"{series['name']}, {point['name']}"


def test_a_condition_that_names_nothing_is_refused(tmp_path, monkeypatch):
    pytest.importorskip("jsonschema")
    monkeypatch.setattr(papers, "SOURCES", str(tmp_path))
    with open(os.path.join(ROOT, "experiments", "vturbo", "intro-shares.toml"),
              encoding="utf-8") as f:
        text = f.read()
    with open(os.path.join(ROOT, "experiments", "experiment.schema.json"), encoding="utf-8") as f:
        (tmp_path / "experiment.schema.json").write_text(f.read())
    (tmp_path / "x.toml").write_text(text.replace('series = "vTurbo"', 'series = "vturbo"', 1))
    with pytest.raises(papers.Refused, match="names the series 'vturbo', which the file has not"):
        papers.read("x")
    (tmp_path / "x.toml").write_text(text.replace("pcpus = 3", "pcpus = 0"))
    with pytest.raises(papers.Refused, match="pcpus: 0 is less than the minimum"):
        papers.read("x")


def test_the_table_of_the_docs_is_the_list():
    pytest.importorskip("jsonschema")
    with open(os.path.join(ROOT, "docs", "experiments.md"), encoding="utf-8") as f:
        found = re.search(r"<!-- results -->\n(.*?)\n<!-- end of results -->", f.read(), re.S)
    assert found[1].strip() == "\n".join(papers.inventory())


def test_a_mistake_is_found_before_anything_is_built(tmp_path, monkeypatch):
    """A {NAME} that nothing says, and a file that is not as the schema says."""
    with open(os.path.join(ROOT, "experiments", "vturbo", "table1.toml"), encoding="utf-8") as f:
        text = f.read()
    (tmp_path / "vturbo").mkdir()
    file = tmp_path / "vturbo" / "mine.toml"
    papers.schema("experiment")  # is kept, and read before SOURCES is another directory
    monkeypatch.setattr(papers, "SOURCES", str(tmp_path))
    file.write_text(text)
    assert run("check", "vturbo/mine") == 0
    file.write_text(text.replace("{vm1}", "{vm7}"))
    with pytest.raises(papers.Refused, match=r"nothing says what \{vm7\} is"):
        run("check", "vturbo/mine")
    file.write_text(text.replace('platform = "sim"', 'platform = "bochs"'))
    with pytest.raises(papers.Refused, match="mine.toml: platform: 'bochs' is not one of"):
        run("check", "vturbo/mine")


def test_a_field_that_there_is_not_is_told():
    vcpus = [{"vm": "a", "vcpu": 0, "cpu_pct": 1.0}]
    with pytest.raises(papers.Refused, match="no field cpu: there is no cpu, but cpu_pct, "):
        papers.measured({"vcpus": "a.0", "field": "cpu"}, vcpus)


# ---- runs ----

@pytest.fixture
def places(tmp_path, monkeypatch):
    """Results are written into a directory of the test."""
    needs("experiments")
    subprocess.run(["make", "-s", "build/sim"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    monkeypatch.setattr(papers, "RESULTS", str(tmp_path / "experiments"))
    monkeypatch.setattr(papers, "REPORT", str(tmp_path / "report"))
    return tmp_path


def run(*words):
    """Runs tools/papers.py, as in main()."""
    old = sys.argv
    sys.argv = ["papers.py", *words]
    try:
        return papers.main()
    finally:
        sys.argv = old


def test_a_setup_is_measured_and_the_same_seed_gives_the_same_bytes(places):
    e = papers.read("vturbo/intro-shares")
    directory, = papers.plan(e, quick=True)
    papers.measure_setup(directory)
    lines = os.path.join(directory, "runs.jsonl")
    with open(lines, "rb") as f:
        first = f.read()
    runs = [json.loads(line) for line in first.splitlines()]
    assert [r["seed"] for r in runs] == [0, 1, 2]
    assert len({r["trace"] for r in runs}) == 3
    papers.measure_setup(directory)
    with open(lines, "rb") as f:
        assert f.read() == first


def test_a_failure_does_not_stop_others_and_finished_setups_are_not_run_again(places, capsys,
                                                                              monkeypatch):
    e = papers.read("vturbo/intro-shares")
    good, = papers.plan(e, quick=True)
    bad = os.path.join(papers.RESULTS, "bad")
    papers.write_if_new(os.path.join(bad, "vms.cfg"), "[vm x]\nimage = nothing\n")
    with open(os.path.join(good, "task.json"), encoding="utf-8") as f:
        papers.write_if_new(os.path.join(bad, "task.json"), f.read())
    assert not papers.snakemake([bad, good], 1, [])
    assert len(papers.finished(good)) == 3
    assert not papers.finished(bad)
    assert "1 failed" in capsys.readouterr().err
    papers.tell_failures([bad, good])
    said = capsys.readouterr().err
    assert re.search(r'^bad failed: .*guest "nothing"(.|\n)*bad/log.txt has all', said), said
    assert "good" not in said
    before = os.stat(os.path.join(good, "runs.jsonl")).st_mtime_ns
    assert papers.snakemake([good], 1, [])
    assert os.stat(os.path.join(good, "runs.jsonl")).st_mtime_ns == before


def test_ctrl_c_keeps_what_is_finished(places):
    """It comes when the second set-up has its result, so Snakemake knows that the first one is
    finished. The next command does not measure that again."""
    directories = papers.plan(papers.read("vslicer/fig10-fairness"), quick=True)
    patience = time.monotonic() + 300
    # Where tests run in the background, Ctrl-C is ignored, and Snakemake would inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def written():
        """Returns [(when, the result of a set-up)], the oldest one first."""
        paths = [os.path.join(d, "runs.jsonl") for d in directories if papers.finished(d)]
        return sorted((os.stat(path).st_mtime_ns, path) for path in paths)

    def interrupt():
        while len(written()) < 2 and time.monotonic() < patience:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    waiting = threading.Thread(target=interrupt)
    try:
        waiting.start()
        with pytest.raises(KeyboardInterrupt):
            papers.snakemake(directories, 1, [])
    finally:
        waiting.join()
        signal.signal(signal.SIGINT, before)
    first, *others = written()
    assert len(others) + 1 < len(directories)
    assert papers.snakemake(directories, 1, [])
    assert first in written() and len(written()) == len(directories)


def test_a_policy_of_ones_own_is_one_more_series(places, capsys):
    assert run("run", "vslicer/fig10-fairness", "--quick", "--policy", "labs/stride.c") == 0
    out = capsys.readouterr().out
    assert re.search(r"ls \| stride \| 4: 2[45]", out)
    where = places / "experiments" / "vslicer" / "fig10-fairness" / "with-stride"
    assert "POLICY=labs/stride.c" in json.loads((where / "result.json").read_text())["command"]
    assert (where / "figure.svg").stat().st_size > 1000


def test_a_policy_that_the_simulation_does_not_know_is_refused(places, tmp_path):
    mine = tmp_path / "mine.c"
    mine.write_text('const struct sched_policy mine = { .name = "mine" };\n')
    with pytest.raises(papers.Refused, match="add it to labs/policies.c"):
        run("run", "vslicer/fig10-fairness", "--quick", "--policy", str(mine))


def test_fields_of_a_figure_can_be_read(monkeypatch):
    """Four or more fields beside each other would be too small."""
    needs("experiments")
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    monkeypatch.setattr(paperreport, "draw_measure", lambda *_: None)
    for fields, shape in ((1, (1, 1)), (3, (1, 3)), (4, (2, 2)), (5, (3, 2))):
        fig, axes = paperreport.draw_measures(plt, {"figure": {"measures": ["m"] * fields}}, None)
        assert axes.shape == shape and len(fig.axes) == fields
        plt.close(fig)


def test_the_report_in_a_browser(places, capsys):
    """No errors; the figure is visible; the table sorts and filters."""
    needs("experiments browser")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    assert run("run", "vturbo/intro-shares", "--quick") == 0
    assert run("run", "together/sensitive-tick", "--quick") == 0
    assert run("report") == 0
    rows = json.loads((places / "report" / "results.json").read_text())
    assert {"paper", "id", "claim", "section", "platform", "seeds", "verdict", "values", "interval",
            "command"} <= set(rows[0])
    options = webdriver.ChromeOptions()
    for word in MANY_ARGS:
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
    try:
        driver.get(f"file://{places}/report/index.html")
        script = driver.execute_script
        assert script("return document.querySelector('.results img').naturalWidth") > 100
        shown = "return [...document.querySelectorAll('.results > tbody > tr')]" \
                ".filter(r => !r.hidden)"
        assert script(shown + ".length") == len(rows)
        script("const s = document.getElementById('verdict'); s.value = 'shape holds';"
               "s.dispatchEvent(new Event('change'))")
        assert script(shown + ".length") == 1
        script("const s = document.getElementById('verdict'); s.value = '';"
               "s.dispatchEvent(new Event('change'))")
        papers_of = shown + ".map(r => r.dataset.paper)"
        script("document.querySelector('th button').click()")
        up = script(papers_of)
        script("document.querySelector('th button').click()")
        assert up == sorted(up, key=str.lower) and script(papers_of)[0] == up[-1]
        script("document.querySelector('a[href=\"together.html\"]').click()")
        assert driver.title == "Five papers on the same workloads"
        ids = script(shown + ".map(r => r.querySelector('small').textContent)")
        assert ids == ["together/sensitive-tick"]
        assert script("return document.querySelector('.results img').naturalWidth") > 100
        assert driver.get_log("browser") == []
    finally:
        driver.quit()


def test_a_number_shows_its_interval():
    assert paperreport.number(12.345678, None) == "12.35"
    assert paperreport.number(12.345678, [12, 13]) == "12.35 (12 to 13)"
