"""The playground, in a browser without a window: it computes what build/sim computes, each control
does something, and the browser has nothing to complain of."""
import glob
import json
import os
import re
import subprocess
import urllib.parse

import labs
import pytest
from conftest import BUILD, ROOT

SIM = os.path.join(BUILD, "sim")
PAGE = os.path.join(BUILD, "playground", "index.html")
PATIENCE = 60  # s: how long one update of the page may take on a busy machine


def missing():
    """Returns what tools/deps.sh would install for these tests, or "" if all is there."""
    said = subprocess.run([os.path.join(ROOT, "tools", "deps.sh"), "--print", "playground",
                           "browser"], capture_output=True, text=True, check=False).stdout
    return " ".join(re.findall(r"^  (\S+) ", said, re.M))


@pytest.fixture(scope="module")
def browser():
    if missing():
        pytest.skip(f"the playground is not tested, because {missing()} is not installed here "
                    "(tools/deps.sh playground browser installs it)")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    subprocess.run(["make", "-s", "build/sim", "build/playground/index.html"], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)
    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                 "--window-size=1400,1000"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
    yield driver
    driver.quit()


class Page:
    """The page in the browser."""

    def __init__(self, driver):
        self.driver = driver

    def script(self, text, *args):
        return self.driver.execute_script(text, *args)

    def updates(self):
        """Returns how many times the page has shown a result."""
        return int(self.script("return document.body.dataset.done || 0"))

    def wait(self, before):
        """Waits until the page has shown a result after the first `before` ones."""
        from selenium.webdriver.support.ui import WebDriverWait
        WebDriverWait(self.driver, PATIENCE, 0.02).until(lambda _: self.updates() > before)

    def open(self, **scenario):
        """Opens the page, with a scenario in the URL if one is given."""
        self.driver.get("about:blank")
        self.driver.get(f"file://{PAGE}#{urllib.parse.urlencode(scenario)}")
        self.wait(0)

    def set(self, control, value):
        """Gives a control a value, as a person does, and waits for the result."""
        before = self.updates()
        self.script("""
            const control = document.getElementById(arguments[0]);
            if (control.type === "checkbox") control.checked = arguments[1];
            else control.value = arguments[1];
            const kind = control.onchange ? "change" : "input";
            control.dispatchEvent(new Event(kind, { bubbles: true }));
        """, control, value)
        self.wait(before)

    def press(self, button):
        """Presses a button that changes the scenario, and waits for the result."""
        before = self.updates()
        self.script("document.getElementById(arguments[0]).click()", button)
        self.wait(before)

    def text(self, name):
        return self.script("return document.getElementById(arguments[0]).textContent", name)

    def trace(self, side=0):
        return self.script("return document.querySelectorAll('.trace')[arguments[0]].textContent",
                           side)

    def value(self, name):
        return self.script("return document.getElementById(arguments[0]).value", name)

    def rows(self):
        return self.script("""
            return Array.from(document.querySelectorAll(".table tr"),
                              (row) => Array.from(row.cells, (cell) => cell.textContent));
        """)

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture
def page(browser):
    page = Page(browser)
    page.complaints()  # those of an earlier test
    yield page
    assert page.complaints() == []


def native(path, *options):
    return json.loads(subprocess.run([SIM, "-j", *options, path], capture_output=True, text=True,
                                     check=True).stdout)


def examples():
    """Returns the names of the VM files that the page offers."""
    with open(PAGE, encoding="utf-8") as f:
        text = re.search(r'id="examples">(.*?)</script>', f.read(), re.S)[1]
    return json.loads(text)


@pytest.mark.long
def test_the_same_trace_as_build_sim_for_every_example(page):
    """The hash covers each decision of the scheduler and the time of it."""
    page.open()
    offered = examples()
    assert {"labs/vslicer.cfg", "boot/mixed.cfg", "boot/pools.cfg"} <= set(offered)
    page.set("seconds", 1)
    for name, example in offered.items():
        page.set("example", name)
        page.set("seconds", 1)
        want = native(os.path.join(ROOT, name), "-p", str(example["pcpus"]), "-t", "1s")
        assert page.trace() == want["trace"], name
        assert len(page.rows()) == 1 + len(want["vcpus"])


def test_the_table_is_that_of_build_sim(page):
    page.open()
    page.set("example", "boot/mixed.cfg")
    want = native(os.path.join(ROOT, "boot", "mixed.cfg"), "-p", page.value("pcpus"))
    got = {(row[0], int(row[1])): row for row in page.rows()[1:]}
    assert len(got) == len(want["vcpus"])
    for v in want["vcpus"]:
        row = got[v["vm"], v["vcpu"]]
        assert row[3] == f"{v['cpu_pct']:.2f}"
        assert float(row[4]) == pytest.approx(v["wait_max_ms"], abs=0.051)


def test_the_url_carries_the_whole_scenario(page):
    page.open(file="[vm a]\nimage = spin\n[vm b]\nimage = busy\n", pcpus=3, warmUp=1, seconds=2,
              seed=7)
    first, url = page.trace(), page.driver.current_url
    assert [row[0] for row in page.rows()[1:]] == ["a", "b"]
    page.set("seed", 8)
    assert page.trace() != first
    page.driver.get("about:blank")
    page.driver.get(url)
    page.wait(0)
    assert page.trace() == first
    assert page.value("pcpus") == "3"


def test_a_mistake_in_the_file_is_told_and_can_be_mended(page):
    page.open(file="[vm a]\nimage = spin\nweight = heavy\n")
    assert 'scenario.cfg:3:10: weight must be a whole number from 1 to 65535, not "heavy"' in \
        page.text("problem")
    page.set("file", "[vm a]\nimage = spin\nweight = 7\n")
    assert page.script("return document.getElementById('problem').hidden")
    assert page.rows()[1][0] == "a"


def test_controls_of_time_and_machine_change_the_run(page, tmp_path):
    file = "[vm a]\nimage = busy\n[vm b]\nimage = busy\n[vm c]\nimage = spin\n"
    path = tmp_path / "scenario.cfg"
    path.write_text(file)
    page.open(file=file, pcpus=1, warmUp=1, seconds=1)
    given = {"-p": "1", "-w": "1", "-t": "1", "-c": "0"}
    for control, option, value in (("pcpus", "-p", "2"), ("warm-up", "-w", "0.5"),
                                   ("seconds", "-t", "3"), ("seed", "-c", "5")):
        given[option] = value
        page.set(control, value)
        want = native(str(path), "-p", given["-p"], "-w", given["-w"] + "s", "-t",
                      given["-t"] + "s", "-c", "seed=" + given["-c"])
        assert page.trace() == want["trace"]
        assert f"{option} " in page.text("command") and value in page.text("command")


EIGHT = """\
[vm a]
image = spin
[vm b]
image = spin
weight = 512
[vm c]
image = spin
cap = 30
[vm d]
image = busy
[vm e]
image = busy
cmdline = percent=70
[vm f]
image = mixed
cmdline = client=8 percent=50
[vm g]
image = waker
cmdline = period_us=2000
[vm h]
image = client
cmdline = server=6
"""


def drawn(page, name):
    """Returns how many colours a picture has."""
    return page.script("""
        const canvas = document.querySelector("." + arguments[0]);
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        return new Set(new Uint32Array(data.buffer)).size;
    """, name)


def test_pictures_show_what_the_result_says(page):
    """The times of the Gantt chart add up to the CPU time of each vCPU, no pCPU has two runs at
    once, and the longest time of the histogram is that of the table."""
    page.open(file=EIGHT, pcpus=4, warmUp=1, seconds=3)
    got = page.script("""
        const { timeline, result } = sides[0], ran = timeline.names.map(() => 0);
        let overlaps = 0;
        for (const runs of timeline.runs) {
            runs.from.forEach((from, k) => {
                const begin = Math.max(from, timeline.begin);
                if (runs.to[k] > begin) ran[timeline.vcpu[runs.record[k]]] += runs.to[k] - begin;
                if (k && runs.to[k - 1] > from) overlaps++;
            });
        }
        const late = timeline.wakes.map((wakes) => Math.max(0, ...wakes.ns.filter(
            (_, k) => wakes.at[k] >= timeline.begin)));
        return { overlaps, ran, late, vcpus: result.vcpus,
                 counted: histogramOf(timeline).flat().reduce((a, b) => a + b, 0) };
    """)
    assert got["overlaps"] == 0
    for ran, late, v in zip(got["ran"], got["late"], got["vcpus"]):
        assert 100 * ran / 3e9 == pytest.approx(v["cpu_pct"], abs=0.001)
        assert late / 1e3 == pytest.approx(v["wake_us"]["max"], abs=0.06)
    assert got["counted"] == pytest.approx(sum(v["wakes"] for v in got["vcpus"]), abs=8)
    assert all(drawn(page, name) > 5 for name in ("gantt", "ready", "credit", "histogram",
                                                  "shares"))


def test_ten_seconds_of_eight_vms_are_there_soon(page):
    """The figure of a fast machine is below a second. It is not asserted here, because the machine
    may be busy; what is asserted is that nothing takes much longer."""
    page.open(file=EIGHT, pcpus=4, warmUp=2, seconds=10)
    page.set("seed", 1)
    took = float(page.script("return document.body.dataset.took"))
    print(f"simulated and drawn in {took:.0f} ms")
    assert took < 1000 * PATIENCE


@pytest.mark.parametrize("path, cpus", [("boot/demo.cfg", 2), ("boot/mixed.cfg", 3),
                                        ("labs/vturbo.cfg", 3)])
def test_entitlement_is_that_of_the_tool(page, path, cpus):
    """Each VM has a demand here, because the tool takes 100 % for a VM without one."""
    import entitlement
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        text = re.sub(r"^demand = .*\n", "", f.read(), flags=re.M)
    wants = iter(("100%", "60%", "35%", "5%", "100%", "90%"))
    text = re.sub(r"^image = .*", lambda m: f"{m[0]}\ndemand = {next(wants)}", text, flags=re.M)
    file = os.path.join(BUILD, "playground", "entitled.cfg")
    with open(file, "w", encoding="utf-8") as f:
        f.write(text)
    subprocess.run(["make", "-s", "build/cfgdump"], cwd=ROOT, check=True)
    want = {}
    for (vm, _), share in entitlement.entitlement(entitlement.load_config(file), cpus).items():
        want[vm] = want.get(vm, 0) + share
    page.open(file=text, pcpus=cpus, seconds=1)
    got = {s["vm"]: s["entitled"] for s in page.script("return sides[0].shares")}
    assert got == {vm: pytest.approx(share, abs=0.05) for vm, share in want.items()}


def test_keys_pan_zoom_and_tell_why(page):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    page.open(file=EIGHT, pcpus=4, warmUp=1, seconds=2)
    chart = page.driver.find_element(By.CSS_SELECTOR, ".gantt")

    def shown():
        return page.script("return [view.window.from, view.window.to]")

    first = shown()
    chart.send_keys("+")
    assert shown()[1] - shown()[0] == pytest.approx((first[1] - first[0]) / 2)
    chart.send_keys("-")
    chart.send_keys(Keys.ARROW_RIGHT)
    assert shown()[0] > first[0]
    chart.send_keys("0")
    assert shown() == [0, 3e9]
    told = set()
    for key in ("]", "]", Keys.ARROW_DOWN, "]", "["):
        chart.send_keys(key)
        told.add(page.text("told"))
    assert len(told) == 4  # the last key leads back to the run before
    for words in told:
        assert re.match(r"\w runs on pCPU [01] from [\d.]+ s on for [\d.]+ (s|ms|µs)", words)
        assert re.search(r"picked as (BOOST|UNDER|OVER), credit -?[\d.]+ ms", words)


def test_the_pointer_tells_what_ran(page):
    """A pCPU on which one vCPU runs all the time, and one that idles."""
    page.open(file="[vm a]\nimage = spin\ncpus = 1\n", pcpus=2, warmUp=1, seconds=1)
    for cpu, said in ((0, "pCPU 0 is idle"), (1, "a runs on pCPU 1")):
        page.script("""
            const canvas = document.querySelector(".gantt"), box = canvas.getBoundingClientRect();
            canvas.dispatchEvent(new PointerEvent("pointermove", {
                clientX: box.left + 300, clientY: box.top + ROW * arguments[0] + 9 }));
        """, cpu)
        assert page.text("told").startswith(said)


def test_buttons_and_wheel_change_the_window(page):
    page.open(file=EIGHT, pcpus=4, warmUp=1, seconds=2)
    before = page.text("shown")
    for button in ("zoom-in", "later", "earlier", "zoom-out", "zoom-all"):
        page.script("document.getElementById(arguments[0]).click()", button)
        page.script("showWindow()")
        assert page.text("shown") != before, button
        before = page.text("shown")
    page.script("""
        const canvas = document.querySelector(".credit");
        canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -1, clientX: 700 }));
        showWindow();
    """)
    assert page.text("shown") != before


def agrees(page, tmp_path, side=0):
    """Asserts that a side shows what build/sim says of the file that the side simulates: the same
    hash, or the same complaint."""
    path = tmp_path / "scenario.cfg"
    path.write_text(page.script("return filesOf(controls.scenario)[arguments[0]]", side))
    options = page.script("return optionsOf(controls.scenario)")
    done = subprocess.run([SIM, "-j", *options, "scenario.cfg"], cwd=tmp_path, check=False,
                          capture_output=True, text=True)
    if done.returncode == 0:
        assert page.text("problem") == ""
        assert page.trace(side) == json.loads(done.stdout)["trace"]
    else:
        assert page.text("problem") == done.stderr
    return done.returncode == 0


def choices():
    return json.loads(subprocess.run([SIM, "-l"], capture_output=True, text=True,
                                     check=True).stdout)


def other_value(param, now):
    """Returns a value that the parameter may have and has not."""
    if "words" in param:
        return next(word for word in param["words"] if word != now)
    return str(next(v for v in (param["min"] + 1, param["min"]) if str(v) != now))


TWO = "# two VMs\n[vm a]\nimage = spin # computes\n[vm b]\nimage = busy\n"


@pytest.mark.parametrize("policy", [pytest.param("credit", marks=pytest.mark.long), "stride"])
def test_each_parameter_has_a_control(page, tmp_path, policy):
    """A control writes its parameter into the file, and resetting takes it out again. Those of the
    second policy leave the file alone."""
    listed = next(p for p in choices()["policies"] if p["policy"] == policy)
    page.open(file=TWO, pcpus=1, warmUp=0.1, seconds=0.2)
    page.set("a-policy", policy)
    page.set("compare", True)
    page.set("b-policy", policy)
    accepted = 0
    for e in listed["params"]:
        for prefix, side in (("a", 0), ("b", 1)) if e["scope"] == "pool" else (("vm1", 0),):
            before = page.value("file")
            value = other_value(e, page.value(f"{prefix}-param-{e['name']}"))
            page.set(f"{prefix}-param-{e['name']}", value)
            accepted += agrees(page, tmp_path, side)
            if side == 0:
                assert f"\n{e['name']} = {value}\n" in page.value("file")
            else:
                assert page.value("file") == before
                assert f"{e['name']}={value}" in page.script("return controls.scenario.other")
            page.press(f"{prefix}-reset-{e['name']}")
            assert page.value("file") == before
    assert accepted > len(listed["params"])
    assert page.value("file").startswith("# two VMs\n")


def test_each_policy_and_preset_can_be_chosen(page, tmp_path):
    page.open(file=TWO, pcpus=1, warmUp=0.1, seconds=0.2)
    traces = set()
    for policy in choices()["policies"]:
        page.set("a-policy", policy["policy"])
        for preset in ["", *policy["presets"]]:
            page.set("a-preset", preset)
            agrees(page, tmp_path)
            if preset:
                assert f"\nsched_preset = {preset}\n" in page.value("file")
            traces.add(page.trace())
    assert len(traces) >= 8
    page.set("a-policy", "")
    assert "sched" not in page.value("file")


def test_sliders_cover_the_whole_range(page):
    page.open(file=TWO, pcpus=1, warmUp=0.1, seconds=0.2)
    listed = next(p for p in choices()["policies"] if p["policy"] == "credit")
    for e in listed["params"]:
        if "words" in e or e["scope"] == "vm":
            continue
        ends = page.script("""
            const param = choices.policies[0].params.find((p) => p.name === arguments[0]);
            return [fromSlider(param, 0), fromSlider(param, SLIDER_STEPS),
                    fromSlider(param, toSlider(param, param.max))];
        """, e["name"])
        assert ends == [e["min"], e["max"], e["max"]], e["name"]
    page.set("vm0-slide-weight", 1000)
    assert "weight = 65535" in page.value("file")
    page.set("a-slide-tslice_us", 300)
    assert int(re.search(r"tslice_us = (\d+)", page.value("file"))[1]) < 30000


def test_vms_are_added_changed_and_removed(page, tmp_path):
    page.open(file=TWO, pcpus=2, warmUp=0.1, seconds=0.5)
    assert page.value("vm0-image") == "spin"
    page.press("add-vm")
    assert [row[0] for row in page.rows()[1:]] == ["a", "b", "vm3"]
    for control, value in (("vm2-image", "busy"), ("vm2-cmdline", "percent=20"), ("vm2-vcpus", "2"),
                           ("vm2-cpus", "1"), ("vm2-param-weight", "512")):
        page.set(control, value)
        assert agrees(page, tmp_path)
        key = control.split("-")[-1]
        assert f"{key} = {value}\n" in page.value("file")
    assert [row[0] for row in page.rows()[1:]] == ["a", "b", "vm3", "vm3"]
    page.press("vm0-remove")
    assert [row[0] for row in page.rows()[1:]] == ["b", "vm3", "vm3"]
    page.set("vm1-cpus", "")
    page.set("file", page.value("file") + "[pool p]\ncpus = 1\n")
    page.set("pool", "p")
    page.set("vm0-pool", "p")
    page.set("a-param-tslice_us", "5000")
    assert agrees(page, tmp_path)
    assert page.value("file").endswith("[pool p]\ncpus = 1\ntslice_us = 5000\n")


def test_two_policies_are_side_by_side_on_the_same_arrivals(page, tmp_path):
    """The clients raise the same number of events at the same times, whatever the policy. The URL
    carries the second policy."""
    with open(os.path.join(ROOT, "boot", "mixed.cfg"), encoding="utf-8") as f:
        file = f.read()
    page.open(file=file, pcpus=3, warmUp=1, seconds=4)
    page.set("compare", True)
    page.set("b-policy", "credit")
    page.set("b-preset", "uniform-1ms")
    assert agrees(page, tmp_path, 0) and agrees(page, tmp_path, 1)
    traces = [page.trace(0), page.trace(1)]
    assert traces[0] != traces[1]
    wakes = page.script("""
        return sides.map((side) => side.timeline.wakes[side.timeline.names.indexOf("client")].at);
    """)
    assert wakes[0] == wakes[1] and len(wakes[0]) > 1000
    means = page.script("""
        return sides.map((side) => side.result.vcpus.find((v) => v.vm === "mixed").event_us.mean);
    """)
    assert means[1] < means[0] / 2
    url = page.driver.current_url
    page.set("compare", False)
    assert page.script("return sides.length") == 1
    page.driver.get("about:blank")
    page.driver.get(url)
    page.wait(0)
    assert [page.trace(0), page.trace(1)] == traces


def saved(page, folder, button, name):
    """Presses a button that saves a file. Returns the file's bytes."""
    from selenium.webdriver.support.ui import WebDriverWait
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior",
                                {"behavior": "allow", "downloadPath": str(folder)})
    page.script("document.getElementById(arguments[0]).click()", button)
    WebDriverWait(page.driver, PATIENCE, 0.02).until(lambda _: (folder / name).exists())
    return (folder / name).read_bytes()


def test_files_are_saved(page, tmp_path):
    """The VM file can be run, the SVG is XML with the colours of all VMs, and the PNG is as large
    as the pictures together."""
    import struct
    import xml.etree.ElementTree
    page.open(file=EIGHT, pcpus=4, warmUp=1, seconds=1, compare="yes")
    assert saved(page, tmp_path, "save-file", "scenario.cfg").decode() == EIGHT
    svg = xml.etree.ElementTree.fromstring(saved(page, tmp_path, "save-svg", "takt.svg"))
    fills = {e.get("fill") for e in svg.iter() if e.tag.endswith("rect")}
    assert set(page.script("return sides[0].timeline.colors")) <= fills
    assert sum("Who ran where" in (e.text or "") for e in svg.iter()) == 2
    png = saved(page, tmp_path, "save-png", "takt.png")
    assert png.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", png[16:24])
    assert (width, height) == (int(svg.get("width")), int(svg.get("height")))


def test_a_link_is_offered(page):
    page.open(file=TWO, seconds=1)
    page.script("document.getElementById('copy-link').click()")
    from selenium.webdriver.support.ui import WebDriverWait
    WebDriverWait(page.driver, PATIENCE, 0.02).until(lambda _: "link" in page.text("told"))


@pytest.mark.parametrize("dark", [False, True])
def test_light_dark_and_a_phone(page, dark):
    """On a narrow screen nothing is wider than the page, and in the dark the pictures are dark."""
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
        {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True})
    page.open(file=EIGHT, pcpus=4, warmUp=1, seconds=1, compare="yes")
    wide = page.script("return document.documentElement.scrollWidth")
    ground = page.script("""
        const canvas = document.querySelector(".gantt");
        return canvas.getContext("2d").getImageData(canvas.width - 2, 2, 1, 1).data[0];
    """)
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert wide <= 360
    assert ground < 64 if dark else ground > 192


def test_no_words_of_a_picture_are_cut_off(page):
    """On a phone, with two policies, and with a VM of which there is nothing to count."""
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True})
    page.open(file=TWO, pcpus=1, warmUp=1, seconds=1, compare="yes")
    page.script("""
        window.cut = []; window.words = [];
        const text = CanvasPainter.prototype.text;
        CanvasPainter.prototype.text = function (x, y, words, color, align = "left") {
            const long = this.context.measureText(words).width;
            const from = x - { left: 0, center: long / 2, right: long }[align];
            window.words.push(words);
            if (from < 0 || from + long > this.context.canvas.width / this.scale)
                window.cut.push(words);
            text.call(this, x, y, words, color, align);
        };
    """)
    page.set("seed", 3)
    page.set("file", "[vm a]\nimage = spin\n")
    cut, words = page.script("return [window.cut, window.words]")
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert "mark: what the VM is entitled to" in words and "No vCPU slept and woke." in words
    assert cut == []


def test_every_control_has_a_name_and_is_reached_by_tab(page):
    """Readers of screens need a name for each control."""
    page.open(file=EIGHT, pcpus=4, seconds=1, compare="yes")
    nameless = page.script("""
        return Array.from(document.querySelectorAll("input, select, textarea, button, canvas"))
            .filter((e) => !(e.labels && e.labels.length) && !e.getAttribute("aria-label") &&
                           !e.textContent.trim() && !e.title)
            .map((e) => e.id || e.className);
    """)
    assert nameless == []
    assert page.script("""
        return Array.from(document.querySelectorAll("input, select, textarea, button, .gantt"))
            .every((e) => e.tabIndex >= 0);
    """)


def linked():
    """Returns the links to scenarios that pages of docs/ have."""
    found = []
    for path in sorted(glob.glob(os.path.join(ROOT, "docs", "*.md"))):
        with open(path, encoding="utf-8") as f:
            found += re.findall(r"\(\.\./build/playground/index\.html#([^)]+)\)", f.read())
    return found


def test_the_scenarios_that_the_docs_link_can_be_seen(page):
    assert len(linked()) >= 6
    for link in linked():
        words = dict(urllib.parse.parse_qsl(link))
        page.open(**words)
        assert page.text("problem") == "", link
        name = words["example"]
        assert page.value("pcpus") == str(examples()[name]["pcpus"])
        assert page.script("return sides.length") == (2 if "compare" in words else 1), link
        if "compare" in words:
            assert page.trace(0) != page.trace(1), link


@pytest.mark.parametrize("number", [5, 6, 7, 8])
def test_the_scenarios_that_the_labs_link_can_be_seen(page, number):
    links = re.findall(r"^\[scene-\d\]: playground\.html#(\S+)$", labs.Lab(number).page(True),
                       re.M)
    assert links
    for link in links:
        words = dict(urllib.parse.parse_qsl(link))
        page.open(**words)
        assert page.text("problem") == "", link
        assert page.value("file") == words["file"] and page.value("pcpus") == words["pcpus"]
        assert page.script("return sides.length") == (2 if "compare" in words else 1), link
        if "compare" in words:
            assert page.trace(0) != page.trace(1), link


def test_a_file_is_loaded(page, tmp_path):
    from selenium.webdriver.common.by import By
    path = tmp_path / "mine.cfg"
    path.write_text("[vm mine]\nimage = spin\n")
    page.open(file=TWO, pcpus=2, seconds=1)
    before = page.updates()
    page.driver.find_element(By.ID, "load-file").send_keys(str(path))
    page.wait(before)
    assert page.rows()[1][0] == "mine"
    assert page.value("file") == path.read_text()


def test_a_long_run_is_given_up_when_another_one_is_asked_for(page):
    """The long one has some 10^8 events. The test fails by its patience if it is not given up."""
    page.open(file=TWO, pcpus=2, seconds=1)
    before = page.updates()
    page.script("""
        const long = "[vm a]\\nimage = hostile\\ncmdline = mode=selfwake\\nvcpus = 8\\n";
        controls.load({ ...EMPTY_SCENARIO, file: long, pcpus: 8, seconds: 600 });
        setTimeout(() => controls.load({ ...EMPTY_SCENARIO, file: arguments[0], seconds: 1 }), 700);
    """, TWO)
    page.wait(before)
    assert [row[0] for row in page.rows()[1:]] == ["a", "b"]


def test_a_finger_can_point_and_pan(page):
    page.open(file=EIGHT, pcpus=4, warmUp=1, seconds=1)
    moved = page.script("""
        const canvas = document.querySelector(".gantt"), box = canvas.getBoundingClientRect();
        const before = view.window.from;
        const touch = (kind, x) => canvas.dispatchEvent(new PointerEvent(kind, {
            pointerId: 1, pointerType: "touch", clientX: box.left + x, clientY: box.top + 9 }));
        canvas.setPointerCapture = () => {}; // the browser knows no pointer of a made-up event
        touch("pointerdown", 300); touch("pointermove", 250); touch("pointerup", 250);
        return view.window.from - before;
    """)
    assert moved > 0
    assert "pCPU 0" in page.text("told")
