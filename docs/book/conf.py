"""How Sphinx makes a book of these pages. tools/book.py puts them all into one directory first, and
sets TAKT_ROOT and TAKT_VERSION."""
import os
import sys

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

ROOT = os.environ["TAKT_ROOT"]
sys.path.insert(0, os.path.join(ROOT, "tools"))
from book import code_text  # noqa: E402  (the path has to be known first)

project = "Takt"
author = "the authors of Takt"
release = version = os.environ["TAKT_VERSION"]
extensions = ["myst_parser", "sphinx.ext.graphviz"]
source_suffix = {".md": "markdown"}
root_doc = "index"
myst_heading_anchors = 4
# A page may skip a level of headings, and show code that is not complete.
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
html_theme = "alabaster"
html_theme_options = {"description": "a small hypervisor", "page_width": "65em",
                      "sidebar_width": "16em", "show_powered_by": False}
html_sidebars = {"**": ["about.html", "searchbox.html", "globaltoc.html"]}
html_show_copyright = False
html_show_sourcelink = False
html_css_files = ["book.css"]
html_static_path = ["_static"]
graphviz_output_format = "svg"
highlight_language = "none"


class Excerpt(SphinxDirective):
    """```{excerpt} FILE NAME```: the text of a function, a structure, a table or an assembler
    routine, as it stands in the tree (code_text() in tools/book.py). The book is not made if it is
    not there any more."""
    required_arguments = 2
    final_argument_whitespace = True  # `struct NAME` is one argument

    def run(self):
        file, name = self.arguments
        path = os.path.join(ROOT, file)
        self.env.note_dependency(path)
        try:
            with open(path, encoding="utf-8") as f:
                found = code_text(file, f.read(), name)
        except OSError:
            raise self.error(f"there is no file {file}") from None
        if not found:
            raise self.error(f"{file} has no {name}")
        language = "nasm" if file.endswith(".asm") else "c"
        block = nodes.literal_block(found[1], found[1], language=language)
        where = nodes.paragraph("", f"{file}, line {found[0]}", classes=["excerpt"])
        return [where, block]


def setup(app):
    app.add_directive("excerpt", Excerpt)
