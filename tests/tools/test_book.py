"""The book: excerpts that are in the tree, links for the place where its pages go, commands that
work, and (long) that Sphinx has nothing to complain of."""
import glob
import os
import re
import subprocess

import book
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
"""


def text(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def test_each_page_is_in_the_list_of_chapters():
    listed = re.findall(r"^[a-z-]+$", text(os.path.join(ROOT, "docs", "book", "index.md")), re.M)
    pages = [os.path.basename(page)[:-3] for page in PAGES + glob.glob(os.path.join(ROOT, "docs",
                                                                                    "*.md"))]
    assert sorted(listed) == sorted(set(pages) - {"index"})


def test_an_excerpt_is_a_function_with_the_comment_above_it():
    line, found = book.function_text(CODE, "add")
    assert line == 4 and found.startswith("/* Adds two") and found.endswith("return a + b;\n}")
    line, found = book.function_text(CODE, "add_all")
    assert line == 13 and found == "int add_all(void) {\n    return add(1, 2);\n}"
    assert book.function_text(CODE, "sub") is None


@pytest.mark.parametrize("page", PAGES, ids=os.path.basename)
def test_excerpts_are_in_the_tree(page):
    for file, name in re.findall(r"^```\{excerpt\} (\S+) (\S+)$", text(page), re.M):
        assert book.function_text(text(os.path.join(ROOT, file)), name), f"{file}: {name}()"


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


def commands():
    """Returns all commands of the book's own pages, each with its page. One that builds comes
    before those that use what was built, as on the page."""
    for page in PAGES:
        for block in re.findall(r"^```console\n(.*?)^```", text(page), re.M | re.S):
            for command in re.findall(r"^\$ (.*)$", block, re.M):
                yield os.path.basename(page), command


def test_commands_work():
    found = list(commands())
    assert len(found) > 15
    for page, command in found:
        done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True,
                              check=False)
        assert done.returncode == 0, f"{page}: {command}\n{done.stdout}{done.stderr}"


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
    assert text(tmp_path / "html" / "journey-exit.html").count('class="excerpt"') == 6
    assert (tmp_path / "html" / "searchindex.js").exists()
    assert (tmp_path / "takt.pdf").read_bytes().startswith(b"%PDF")
