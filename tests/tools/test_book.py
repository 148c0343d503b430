"""The book: excerpts that are in the tree, links for the place where its pages go, commands that
work, and (long) that Sphinx has nothing to complain of."""
import glob
import os
import re
import subprocess

import book
import faults
import pytest
from conftest import ROOT

PAGES = sorted(glob.glob(os.path.join(ROOT, "docs", "book", "*.md")))

CODE = """/* What the file is. */
#include "x.h"

/* Adds two numbers,
 * of which both are small. */
static int add(int a,
               int b) {
    return a + b;
}

int add_all(void);

int add_all(void) {
    return add(1, 2);
}

/* Multiplies. */
static inline __attribute__((always_inline)) int
times(int a) {
    return 2 * a;
}

struct sum {
    struct {
        int a;
    };
};

/* What there is to add. */
static const struct {
    int a, b;
} sums[] = {
    { 1, 2 },
};

const int all[] = {
    3,
};
"""

ROUTINE = """\
; Adds two numbers.
global add
add:
    lea eax, [rdi + rsi]
.end:
    ret

sub:
    ret
"""


def text(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def test_each_page_is_in_the_list_of_chapters():
    listed = re.findall(r"^[a-z-]+$", text(os.path.join(ROOT, "docs", "book", "index.md")), re.M)
    pages = [os.path.basename(page)[:-3] for page in PAGES + glob.glob(os.path.join(ROOT, "docs",
                                                                                    "*.md"))]
    assert sorted(listed) == sorted(set(pages) - {"index"})


def excerpt(name):
    return book.code_text("a.c", CODE, name)


# Chapters in which one looks things up. They need no exercises.
REFERENCE = {"shell", "lab", "trace", "experiments", "playground", "labs", "policy-measurements",
             "io-measurements", "collab-measurements", "simulation-measurements", "pictures",
             "exercises", "answers", "glossary"}


def exercises(page):
    """Returns the headings of a page and, below each, the numbers of its items and its links."""
    _, *chapters = re.split(r"^### ", text(os.path.join(ROOT, "docs", "book", page)), flags=re.M)
    found = {}
    for chapter in chapters:
        title, _, rest = chapter.partition("\n")
        found[title] = (re.findall(r"^(\d+)\. ", rest, re.M),
                        re.search(r"^Read \[the chapter\]\((?:../)?([a-z-]+).md\)", rest, re.M))
    return found


def test_each_chapter_has_three_exercises_and_each_exercise_an_answer():
    asked, answered = exercises("exercises.md"), exercises("answers.md")
    listed = re.findall(r"^[a-z-]+$", text(os.path.join(ROOT, "docs", "book", "index.md")), re.M)
    assert [link[1] for _, link in asked.values()] == [c for c in listed if c not in REFERENCE]
    assert list(asked) == list(answered)
    for title, (numbers, _) in asked.items():
        assert len(numbers) >= 3, title
        assert numbers == answered[title][0], title


def test_an_excerpt_is_a_function_with_the_comment_above_it():
    line, found = excerpt("add")
    assert line == 4 and found.startswith("/* Adds two") and found.endswith("return a + b;\n}")
    line, found = excerpt("add_all")
    assert line == 13 and found == "int add_all(void) {\n    return add(1, 2);\n}"
    line, found = excerpt("times")
    assert line == 17 and found.startswith("/* Mul") and found.endswith("return 2 * a;\n}")
    assert excerpt("sub") is None


def test_an_excerpt_is_a_structure_or_a_table():
    assert excerpt("struct sum") == (23, "struct sum {\n    struct {\n        int a;\n    };\n};")
    line, found = excerpt("sums[]")
    assert line == 29 and found.startswith("/* What there is") and found.endswith("{ 1, 2 },\n};")
    assert excerpt("all[]") == (36, "const int all[] = {\n    3,\n};")
    assert excerpt("struct su") is None and excerpt("um[]") is None


def test_an_excerpt_is_a_routine_of_an_assembler_source():
    line, found = book.code_text("a.asm", ROUTINE, "add")
    assert line == 1 and found.startswith("; Adds two") and found.endswith(".end:\n    ret")
    assert book.code_text("a.asm", ROUTINE, "sub") == (8, "sub:\n    ret")
    assert book.code_text("a.asm", ROUTINE, "mul") is None


@pytest.mark.parametrize("page", PAGES, ids=os.path.basename)
def test_excerpts_are_in_the_tree(page):
    for file, name in re.findall(r"^```\{excerpt\} (\S+) (.+)$", text(page), re.M):
        assert book.code_text(file, text(os.path.join(ROOT, file)), name), f"{file}: {name}"


def test_links_of_a_page_where_all_pages_are_in_one_directory():
    page = "docs/book/exercises.md"
    for link, flat in (("[a](../virt.md#events)", "[a](virt.md#events)"),
                       ("[a](answers.md)", "[a](answers.md)"),
                       ("[a](#b)", "[a](#b)"),
                       ("[a](https://b.c/d)", "[a](https://b.c/d)"),
                       ("![a](../img/a.png)", "![a](img/a.png)"),
                       ("[a](../../README.md)", "a (`README.md`)"),
                       ("```\n[a](../virt.md)\n```", "```\n[a](../virt.md)\n```")):
        assert book.flat(link, page) == flat
    assert book.flat("[a](../build/playground/index.html#x=y)", "docs/policies.md") == \
        '<a href="../../playground/index.html#x=y">a</a>'


def own_commands():
    """Returns all commands of the book's own pages, each with its page. One that builds comes
    before those that use what was built, as on the page."""
    for page in PAGES:
        for block in re.findall(r"^```console\n(.*?)^```", text(page), re.M | re.S):
            for command in re.findall(r"^\$ (.*)$", block, re.M):
                yield os.path.basename(page), command


def shell(page, command):
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, f"{page}: {command}\n{done.stdout}{done.stderr}"


def test_commands_work():
    found = list(own_commands())
    assert len(found) > 15
    for page, command in found:
        shell(page, command)


# ---- the other chapters ----

CHAPTERS = sorted(glob.glob(os.path.join(ROOT, "docs", "*.md")))
COMMAND = re.compile(r"([A-Z_]+=\S+ )?(make [a-zB]|tools/|build/(sim|unit|fuzz)|qemu-|xenalyze).*")

# What becomes of the commands of the other chapters, by their beginnings: "here" is run by a long
# test of this file. All others need an emulator with a person, a network, much time, or something
# that this computer may not have. For these there is a file that runs what the command runs, and a
# word that stands there.
BY = (
    ("make labs-check", "mk/goals.mk", "labs-check"),
    ("make labs", "here"),
    ("make lab N=5", "here"),
    ("make race", "tests/tools/test_race.py", "race"),
    ("make build/unit/", "here"),
    ("make build/fuzz/", "mk/goals.mk", "fuzz"),
    ("make build/sim", "here"),
    ("make sim MODEL=1 SCENARIO=boot", "here"),
    ("make sim MODEL=1 SCENARIO=file.cfg", "here"),
    ("make sim SCENARIO=boot/net.cfg GDB=1", "tests/tools/test_whole.py", "GDB=1"),
    ("make sim SCENARIO=boot/net.cfg", "here"),
    ("make sim-faults", "mk/goals.mk", "sim-faults"),
    ("make tsan", "mk/goals.mk", "tsan"),
    ("make playground", "tests/tools/test_playground.py", "build/playground/index.html"),
    ("make compare", "tests/tools/test_compare.py", "import compare"),
    ("make experiment ", "tests/tools/test_experiment.py", "experiment.py"),
    ("make experiments", "mk/goals.mk", "experiments-quick"),
    ("make report", "tests/tools/test_papers.py", "paperreport"),
    ("make net-demo", "tests/tools/test_netdemo.py", "net-demo"),
    ("make net-experiments", "tests/system/test_netexp.py", "netexp"),
    ("make linux-demo", "tests/tools/test_linuxdemo.py", "linuxdemo"),
    ("make run", "tools/fresh.sh", "make run"),
    ("make iso && tools/machine.py run --no-exit-port", "tests/system/test_ends.py",
     "no-exit-port"),
    ("make iso VMS=boot/store.cfg", "tests/system/test_store.py", "boot/store.cfg|storedemo"),
    ("make B=build/labs LABS=labs/stride.c", "tests/system/test_policies.py",
     "LABS=labs/stride.c"),
    ("tools/mkiso.sh build/labs/takt.iso", "tests/system/takt.py", "mkiso"),
    ("tools/machine.py run build/labs/takt.iso", "tests/system/test_ends.py", "machine"),
    ("tools/mklabs.sh", "here"),
    ("tools/deps.sh grade", "tests/tools/test_deps.py", "deps.sh"),
    ("tools/grade-all.py", "tests/tools/test_labs.py", "grade-all"),
    ("tools/papers.py run", "tests/tools/test_slurm.py", "slurm"),
    ("tools/netbench.py", "tests/tools/test_netbench.py", "netbench"),
    ("tools/netexp.py", "tests/system/test_netexp.py", "netexp"),
    ("tools/linuxguest.py", "tests/system/takt.py", "linuxguest"),
    ("tools/mutants.py", "tests/tools/test_mutants.py", "mutants"),
    ("tools/replay.py", "tests/system/test_replay.py", "replay"),
    ("tools/taktctl", "tests/tools/test_taktctl.py", "taktctl"),
    ("tools/takt-store", "tests/system/test_store.py", "takt-store|storedemo"),
    ("tools/simseeds.py", "here"),
    ("tools/simfaults.py", "tests/tools/test_simfaults.py", "simfaults"),
    ("tools/compare.py --platform sim", "here"),
    ("tools/trace2json.py", "here"),
    ("tools/trace-picture.py", "tests/tools/test_trace.py", "trace-picture"),
    ("tools/trace2xen.py", "here"),
    ("xenalyze", "tests/tools/test_trace.py", "xenalyze"),
    ("build/sim replay", "tests/system/test_replay.py", "replay"),
    ("build/sim-whole -w 1s -t 11s labs/vturbo-fig6", "tests/tools/test_whole.py", "vturbo-fig6"),
    ("build/sim", "here"),
    ("qemu-img create -f qcow2", "tests/system/test_disk.py", '"qemu-img", "create"'),
    ("qemu-system-x86_64 -M q35 -accel kvm", "tools/machine.py", "kernel-irqchip=split"),
    ("qemu-system-x86_64 -accel tcg -cpu max -smp 2", "tests/system/takt.py", "unix:"),
    ("qemu-system-x86_64 -accel tcg -cpu max -m 64", "tests/tools/test_book.py",
     "test_a_guest_on_a_bare_machine"),
)


def chapter_commands():
    """Returns the commands in the blocks of code of all other chapters, without their comments."""
    for path in CHAPTERS:
        page = text(path)
        blocks = re.findall(r"^```(?:console|sh)?\n(.*?)^```", page, re.M | re.S)
        blocks += re.findall(r"^(?: {4}.*\n)+", re.sub(r"^```.*?^```", "", page, flags=re.M | re.S),
                             re.M)
        for block in blocks:
            for line in block.replace("\\\n", " ").split("\n"):
                line = re.sub(r"\s+", " ", line.strip().removeprefix("$ ").partition(" #")[0])
                if COMMAND.fullmatch(line):
                    yield os.path.basename(path), line.strip()


def by(command):
    """Returns the row of BY for a command."""
    bare = re.sub(r"^[A-Z_]+=\S+ ", "", command)
    return next((row for row in BY if bare.startswith(row[0])), None)


def test_each_command_of_the_other_chapters_is_run_somewhere():
    found = list(chapter_commands())
    assert len(found) > 60
    for page, command in found:
        row = by(command)
        assert row, f"{page}: which test runs `{command}`?"
        if row[1] != "here":
            assert re.search(row[2], text(os.path.join(ROOT, row[1]))), f"{command}: {row}"
    unused = [row[0] for row in BY if row not in [by(command) for _, command in found]]
    assert not unused


def picture(name):
    """Returns the cells of a picture of docs/book/pictures.md, each as a list of its parts."""
    page = text(os.path.join(ROOT, "docs", "book", "pictures.md"))
    label = re.search(rf'^digraph {name} .*?label="(.*?)"\];$', page, re.M | re.S)[1]
    label = label.replace("\\\n", "")
    return [cell.split("|") for cell in re.findall(r"\{(.*?)\}", label)]


def test_the_picture_of_the_floors_is_the_table_of_rooms():
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", text(os.path.join(ROOT, "docs", "architecture.md")),
                      re.M)
    table = sorted((int(floor), room.rstrip("/")) for floor, rooms in rows
                   for room in re.findall(r"`(.*?)`", rooms))
    shown = []
    for cell in picture("floors")[0]:
        floor, _, rooms = cell.partition("  ")
        shown += [(int(floor), room) for room in rooms.split(", ")]
    assert sorted(shown) == table


# The sections of each chapter about a floor.
SECTIONS = ["What this floor is for", "What it stands on, and who uses it", "Its central structure",
            "Journey: ", "The rule that is easiest to break", "What holds it"]


def floor_chapters():
    """Returns [(floor, title, page)] from the table of docs/book/floors.md."""
    page = text(os.path.join(ROOT, "docs", "book", "floors.md"))
    rows = re.findall(r"^\| (\d+) \| \[(.*?)\]\((floor-\w+)\.md\) \| (.*?) \|", page, re.M)
    rooms = [f"{floor}  {re.sub('`|/(?=`)', '', rooms)}" for floor, _, _, rooms in rows]
    assert rooms == picture("floors")[0][::-1]
    return [(floor, title, name) for floor, title, name, _ in rows]


def test_each_floor_has_a_chapter_with_a_journey():
    pages = {os.path.basename(page) for page in PAGES if "/floor-" in page}
    assert pages == {f"{name}.md" for _, _, name in floor_chapters()}
    rooms = dict(cell.split("  ") for cell in picture("floors")[0])
    for floor, title, name in floor_chapters():
        page = text(os.path.join(ROOT, "docs", "book", f"{name}.md"))
        assert page.startswith(f"# Floor {floor}: {title}\n\nRooms: "), name
        named = re.search(r"^Rooms: (.*)\.$", page, re.M)[1]
        assert re.sub("`|/(?=`)", "", named) == rooms[floor], name
        headings = re.findall(r"^## (.*)$", page, re.M)
        assert len(headings) == len(SECTIONS), name
        assert all(heading.startswith(wanted) for heading, wanted in zip(headings, SECTIONS)), name
        journey = page.partition("\n## Journey: ")[2].partition("\n## ")[0]
        assert 3 <= journey.count("```{excerpt}") <= 7, name


def test_faults_that_chapters_name_are_there():
    """Each row names a fault of tests/mutants/, and the test that it turns red."""
    known = {fault.name: fault.tests for fault in faults.all_faults()}
    for _, _, name in floor_chapters():
        page = text(os.path.join(ROOT, "docs", "book", f"{name}.md"))
        table = page.partition("\n| fault | what goes wrong | test |\n")[2].partition("\n\n")[0]
        rows = re.findall(r"^\| `(\w+)` \| .* \| `(.*)` \|$", table, re.M)
        assert len(rows) >= 2, name
        for fault, test in rows:
            assert test in known.get(fault, []), f"{name}: {fault}, {test}"


@pytest.mark.parametrize("name, files", [
    ("addresses", ["boot/layout.h"]), ("guest", ["include/takt/abi.h", "include/takt/device.h"])])
def test_addresses_in_pictures_are_those_of_the_sources(name, files):
    sources = "".join(text(os.path.join(ROOT, path)) for path in files)
    known = {int(number, 16) for number in re.findall(r"\b0x[0-9a-f]+", sources)}
    cells = [cell[0] for cell in picture(name) if cell[0].startswith("0x")]
    assert len(cells) >= 4 and {int(cell, 16) for cell in cells} <= known
    assert cells == sorted(cells, key=lambda cell: -int(cell, 16))


def test_goals_that_are_named_are_there():
    rules = "".join(text(path) for which in ("Makefile", "mk/*.mk", "labs/frame/*.mk")
                    for path in glob.glob(os.path.join(ROOT, which)))
    goals = set(re.findall(r"^([a-z][a-z-]*):", rules, re.M))
    for path in [*CHAPTERS, *PAGES, os.path.join(ROOT, "README.md")]:
        for goal in re.findall(r"`make ([a-z][a-z-]*)(?![\w/-])", re.sub(r"\s+", " ", text(path))):
            assert goal in goals, f"{os.path.basename(path)}: make {goal}"


@pytest.mark.long
def test_commands_of_the_other_chapters(tmp_path):
    places = {"../lab5": "lab5", "../course": "course", "net.json": "net.json", "net.bin":
              "net.bin", "trace.bin": "net.bin", "trace.json": "trace.json", "trace.xen":
              "trace.xen"}
    for page, command in chapter_commands():
        if by(command)[1] != "here":
            continue
        for name, place in places.items():
            command = re.sub(rf"(?<![\w/]){re.escape(name)}(?!\w)", str(tmp_path / place), command)
        shell(page, command.replace("SCENARIO=file.cfg", "SCENARIO=labs/5/weights.cfg"))


@pytest.mark.long
def test_a_guest_on_a_bare_machine():
    """The first command of docs/writing-a-guest.md, with a guest that is in the tree."""
    subprocess.run(["make", "-s", "build/guests/hello.elf"], cwd=ROOT, check=True)
    command = next(c for _, c in chapter_commands() if "greet.elf" in c)
    done = subprocess.run(["bash", "-c", command.replace("greet", "hello")], cwd=ROOT,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=120, text=True,
                          check=False)
    assert done.returncode == 1
    assert re.match(r'hello from a bare machine: .* command line "times=3"\n', done.stdout)


@pytest.mark.long
def test_the_whole_book(tmp_path, monkeypatch):
    """Each page is in the list of chapters, each link leads somewhere, each diagram can be drawn;
    and the PDF has them all."""
    said = subprocess.run([os.path.join(ROOT, "tools", "deps.sh"), "--print", "book"],
                          capture_output=True, text=True, check=False).stdout
    missing = " ".join(re.findall(r"^  (\S+) ", said, re.M))
    if missing:
        pytest.skip(f"the book is not made, because {missing} is not installed here "
                    "(tools/deps.sh book installs it)")
    monkeypatch.setattr(book, "BOOK", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["book.py"])
    assert book.main() == 0
    page = text(os.path.join(ROOT, "docs", "book", "journey-exit.md"))
    html = text(tmp_path / "html" / "journey-exit.html")
    assert html.count('class="excerpt"') == page.count("```{excerpt}") > 5
    assert (tmp_path / "html" / "searchindex.js").exists()
    assert (tmp_path / "takt.pdf").read_bytes().startswith(b"%PDF")
