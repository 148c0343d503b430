#!/usr/bin/env python3
"""Makes the book of all pages of docs/: HTML with a search, and PDF.

    tools/book.py [--no-pdf]

docs/book/index.md has the order of the chapters. Excerpts of code are taken from the tree now. A
link that leads nowhere, and a function that is not in the tree any more, end it with a sentence.
The results are build/book/html/index.html and build/book/takt.pdf.
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys

import experiment
import machine
import sentence

DOCS = os.path.join(machine.ROOT, "docs")
BOOK = os.path.join(machine.BUILD, "book")


def comment_above(lines, first):
    """Returns the number of the line where the comment begins that ends just above line
    `first`."""
    if not lines[first - 1].endswith("*/"):
        return first
    first -= 1
    while not lines[first].startswith("/*"):
        first -= 1
    return first


def routine_text(lines, name):
    """Returns first line and text of the assembler routine `name`, up to the next empty line."""
    if f"{name}:" not in lines:
        return None
    first = last = lines.index(f"{name}:")
    while re.match(r";|global ", lines[first - 1]):
        first -= 1
    while lines[last]:
        last += 1
    return first + 1, "\n".join(lines[first:last])


def code_text(file, text, name):
    """Returns the first line and the text of what `name` names in a file, with the comment above
    it: a C function, a `struct NAME`, a table `NAME[]`, or in an assembler source a routine. None
    if the file has no such thing."""
    lines = text.split("\n")
    if file.endswith(".asm"):
        return routine_text(lines, name)
    if name.startswith("struct ") or name.endswith("[]"):
        head = re.compile(rf"^[a-z}}](.*[\s*])?{re.escape(name)}( =)? \{{$|^{re.escape(name)} \{{$")
    else:
        head = re.compile(rf"^(?=[a-z])[^;={{]*\b{name}\(")
    for i, line in enumerate(lines):
        end = i
        while head.match(line) and end < len(lines) and not lines[end].endswith(("{", ";")):
            end += 1
        if not head.match(line) or end == len(lines) or not lines[end].endswith("{"):
            continue
        first = i
        if line.startswith(f"{name}("):  # the type is on the line before
            first -= 1
        if line.startswith("}"):  # a table whose type is described on the spot
            while not lines[first].endswith("struct {"):
                first -= 1
        first = comment_above(lines, first)
        last = next(n for n in range(end + 1, len(lines)) if re.match(r"\};?$", lines[n]))
        return first + 1, "\n".join(lines[first:last + 1])
    return None


def flat(text, page):
    """Returns a page's text with the links that it needs when all pages are in one directory. A
    link to a file that is no page becomes the name of the file."""
    def target(match):
        words, link = match.groups()
        if re.match(r"\w+:|#", link):
            return match[0]
        path, _, anchor = link.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), path))
        anchor = f"#{anchor}" if anchor else ""
        if path.startswith("build/playground/"):
            return f'<a href="../../playground/index.html{anchor}">{words[1:-1]}</a>'
        if path.startswith("docs/img/"):
            return f"{words}({path.removeprefix('docs/')})"
        if path.startswith("docs/"):
            return f"{words}({os.path.basename(path)}{anchor})"
        return words if words.startswith("!") else f"{words[1:-1]} (`{path}`)"

    pieces = re.split(r"(^( *)```.*?^\2```$)", text, flags=re.M | re.S)
    return "".join(piece if i % 3 == 1 else re.sub(r"(!?\[[^]]*\])\(([^)\s]+)\)", target, piece)
                   for i, piece in enumerate(pieces) if i % 3 != 2)


def collect(into):
    """Writes all pages into one directory. Pages that have not changed keep their time, so that
    Sphinx reads only the others."""
    os.makedirs(os.path.join(into, "_static"), exist_ok=True)
    pages = sorted(glob.glob(os.path.join(DOCS, "*.md")) +
                   glob.glob(os.path.join(DOCS, "book", "*.md")))
    names = {os.path.basename(page) for page in pages}
    if len(names) < len(pages):
        raise sentence.Problem("docs/ and docs/book/ have a page of the same name")
    for page in pages:
        with open(page, encoding="utf-8") as f:
            text = flat(f.read(), os.path.relpath(page, machine.ROOT))
        write_if_new(os.path.join(into, os.path.basename(page)), text)
    for old in glob.glob(os.path.join(into, "*.md")):
        if os.path.basename(old) not in names:
            os.remove(old)
    shutil.copytree(os.path.join(DOCS, "img"), os.path.join(into, "img"), dirs_exist_ok=True)
    shutil.copy(os.path.join(DOCS, "book", "conf.py"), into)
    shutil.copy(os.path.join(DOCS, "book", "book.css"), os.path.join(into, "_static"))


def write_if_new(path, text):
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            if f.read() == text:
                return
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def sphinx(builder, into):
    """Runs Sphinx, for which each warning is an error: a link that leads nowhere is one."""
    sentence.need("sphinx", "python3-sphinx")
    sentence.need("myst_parser", "python3-myst-parser")
    words = [sys.executable, "-m", "sphinx", "-b", builder, "-q", "-W", "--keep-going",
             "-d", os.path.join(BOOK, "doctrees-" + builder), os.path.join(BOOK, "src"), into]
    version = experiment.commit()["commit"][:10]
    env = dict(os.environ, TAKT_ROOT=machine.ROOT, TAKT_VERSION=version)
    if subprocess.run(words, env=env).returncode:
        raise sentence.Problem("the book is not made: what is wrong with its pages is above")


def printed(page):
    """Returns the page of the whole book as it is printed: with the list of chapters, which the
    browser shows at the side, behind the preface. Links lead to the page itself."""
    page = page.replace('href="index.html#', 'href="#')
    side = page[page.index('<div class="sphinxsidebar"'):]
    chapters = re.search(r'<p class="caption".*?(?=</div>)', side, re.S)[0]
    first = page.index('<span id="document-architecture">')
    return f'{page[:first]}<div class="chapters"><h2>Chapters</h2>{chapters}</div>{page[first:]}'


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-pdf", action="store_true", help="only HTML")
    args = parser.parse_args()
    collect(os.path.join(BOOK, "src"))
    html = os.path.join(BOOK, "html")
    sphinx("html", html)
    print(os.path.relpath(os.path.join(html, "index.html")))
    if args.no_pdf:
        return 0
    single = os.path.join(BOOK, "single")
    sphinx("singlehtml", single)
    weasyprint = sentence.need("weasyprint", "weasyprint")
    pdf = os.path.join(BOOK, "takt.pdf")
    with open(os.path.join(single, "index.html"), encoding="utf-8") as f:
        weasyprint.HTML(string=printed(f.read()), base_url=single + "/").write_pdf(pdf)
    print(os.path.relpath(pdf))
    return 0


if __name__ == "__main__":
    sentence.run(main)
