"""What the documentation quotes is in the tree."""
import glob
import os
import re

import pytest
import size
from conftest import ROOT


def text(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as f:
        return f.read()


def test_the_worked_example_is_the_policy_that_is_tested():
    code = text("labs", "stride.c")
    blocks = re.findall(r"```c\n(.*?)```", text("docs", "writing-a-policy.md"), re.S)
    assert len(blocks) >= 5
    for block in blocks:
        assert block.rstrip() in code
    assert len(size.lines_of("stride.c", code)) < 60


def test_files_of_labs_that_are_named_are_there():
    for page in ("policies.md", "policy-measurements.md", "simulation.md",
                 "simulation-measurements.md", "writing-a-policy.md"):
        for name in set(re.findall(r"(?<!build/)labs/[\w-]+\.\w+", text("docs", page))):
            assert os.path.exists(os.path.join(ROOT, name)), f"{page}: {name}"


def test_the_table_of_locks_is_complete():
    """Each ticket lock of the hypervisor has a row that names the file with its definition, and
    each of these files still has one. The console's lock is the only one of another kind."""
    defined = set()
    for path in glob.glob(os.path.join(ROOT, "hv", "**", "*.[ch]"), recursive=True):
        found = re.findall(r"^(?:    |static |)struct spinlock \w+;", text(path), re.M)
        defined |= {os.path.relpath(path, ROOT)} if found else set()
    table = text("docs", "architecture.md").partition("\n## Locks\n")[2]
    rows = re.findall(r"^\| [^|]*lock[^|]* \| `(hv/\S+)` \|", table, re.M)
    assert len(rows) > 15 and rows.pop() == "hv/platform/console.c"
    assert set(rows) == defined


def test_parameters_and_presets_of_the_docs():
    """Every parameter of Credit is in docs/scheduler.md, and so is every preset."""
    source, doc = text("hv", "sched", "credit_params.c"), text("docs", "scheduler.md")
    names = re.findall(r"^    (?:VM|NUM|WORD)\((\w+),", source, re.M) + re.findall(
        r'PRESET\("([^"]+)"', source
    )
    assert len(names) > 40
    assert not [n for n in names if f"`{n}`" not in doc and n not in ("ratelimit_exact",)]


def test_scenarios_can_be_run():
    import subprocess
    subprocess.run(["make", "-s", "build/sim"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    for path in glob.glob(os.path.join(ROOT, "labs", "*.cfg")):
        if "[model]" in text(path):
            continue  # for the simulation of the whole machine: tests/tools/test_whole.py
        subprocess.run([os.path.join(ROOT, "build", "sim"), "-n", "-p", "8", path], check=True)


PAGES = ["README.md", "tests/machines/README.md"]
PAGES += [os.path.relpath(path, ROOT) for path in glob.glob(os.path.join(ROOT, "docs", "*.md"))]
PAGES += [os.path.relpath(path, ROOT) for path in glob.glob(os.path.join(ROOT, "docs/book/*.md"))]


def prose(page):
    """Returns a page without its blocks of code."""
    return re.sub(r"^( *)```.*?^\1```", "", text(page), flags=re.M | re.S)


def anchors(page):
    """Returns the anchors of a page's headings, as GitHub makes them: lower case, blanks become
    hyphens, and of the other characters only letters, digits, hyphens and underscores are kept."""
    found, seen = set(), {}
    for heading in re.findall(r"^#+ +(.*)$", prose(page), re.M):
        heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        seen[anchor] = seen.get(anchor, -1) + 1
        found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
    return found


PLAYGROUND = "../build/playground/index.html"


def links(page):
    """Returns the targets of a page's links and pictures, without those of other sites."""
    targets = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", prose(page)))
    return [t for t in targets if not re.match(r"\w+:", t)]


@pytest.mark.parametrize("page", sorted(PAGES))
def test_links_and_anchors_lead_somewhere(page):
    for link in links(page):
        path, _, anchor = link.partition("#")
        if path == PLAYGROUND:
            continue  # it has to be built; tests/tools/test_playground.py opens these links
        target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        assert os.path.exists(os.path.join(ROOT, target)), f"{page}: there is no {target}"
        if anchor:
            assert anchor in anchors(target), f"{page}: {target} has no heading #{anchor}"


def test_every_page_is_reached_from_the_readme():
    reached, todo = set(), ["README.md"]
    # The list of chapters of the book is no list of links; Sphinx checks that it has all pages.
    todo += [page for page in PAGES if page.startswith("docs/book/")]
    while todo:
        page = todo.pop()
        if page in reached or not page.endswith(".md"):
            continue
        reached.add(page)
        paths = [link.partition("#")[0] for link in links(page)]
        todo += [os.path.normpath(os.path.join(os.path.dirname(page), p)) for p in paths if p]
    assert not set(PAGES) - reached - {"tests/machines/README.md"}


def test_files_that_pages_name_are_there():
    """A path in `code` exists in the tree. The exception is guests/greet.c, which the reader is to
    write."""
    rooms = "hv|common|docs|tools|tests|guests|guestlib|drivers|netstack|include|labs|mk"
    rooms = rf"`((?:{rooms})/[\w./-]+)`"
    missing = set()
    for page in set(PAGES) - {"tests/machines/README.md"}:
        for path in re.findall(rooms, prose(page)):
            there = glob.glob(os.path.join(ROOT, path.rstrip(".")))
            if (
                not there
                and path != "guests/greet.c"
                and not glob.glob(os.path.join(ROOT, path + ".*"))
            ):
                missing.add(f"{page}: {path}")
    assert not missing, "\n".join(sorted(missing))
