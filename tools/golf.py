#!/usr/bin/env python3
"""Measures how hard the sources are to read, by what can be counted.

  tools/golf.py             prints a table with one row for each room
  tools/golf.py PATH...     the same for these files and directories, and lists each place

Counted are: conditional expressions (`a ? b : c`) per 100 lines of code, statements that have more
than one of them, functions that are chosen by one (`(on ? set : clear)(bit)`), comma expressions
behind `return`, hexadecimal numbers without a name in hv/virt/, and lines wider than WIDTH columns.
Exits 1 if a measure of a room is beyond its limit (see MEASURES).
"""
import os
import re
import sys
from collections import Counter, defaultdict

import sentence
from size import lines_of

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WIDTH = 100  # columns; a tab is four
CODE = (".c", ".h")
PROSE = (".md",)
WIDE = CODE + (".asm", ".inc", ".ld", ".py", ".sh", ".mk", "Makefile")


class Measure:
    """`limit` is the largest good value of a room."""

    def __init__(self, column, limit, title):
        self.column, self.limit, self.title = column, limit, title


MEASURES = {
    "ternary": Measure("?/100", 0.99, "conditional expressions per 100 lines of code"),
    "nested": Measure("many ?", 0, "statements with more than one conditional expression"),
    "function": Measure("fn ?", 0, "functions chosen by a conditional expression"),
    "comma": Measure("comma", 0, "comma expressions behind return"),
    "hex": Measure("hex", 0, "hexadecimal numbers without a name in hv/virt/"),
    "wide": Measure("wide", 0, f"lines of code over {WIDTH} columns"),
    "prose": Measure("wide md", 0, f"lines of Markdown over {WIDTH} columns, tables apart"),
}

TOKEN = re.compile(r"""
    (?P<skip> /\*.*?\*/ | //[^\n]* | \\\n | [ \t]+ )
  | (?P<string> "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' )
  | (?P<word> [A-Za-z_]\w* )
  | (?P<number> \.?\d(?:[eEpP][+-]|[\w.])* )
  | (?P<newline> \n )
  | (?P<mark> \#\# | -> | . )
""", re.X | re.S)
# Words before a parenthesis that are not the name of a called function.
NOT_A_CALL = {"if", "while", "switch", "for", "return", "sizeof", "case", "else", "do"}


class Token:
    def __init__(self, kind, text, line):
        self.kind, self.text, self.line = kind, text, line


def tokens_of(text):
    """Returns the tokens of a C file. A directive of the preprocessor ends in a token of the kind
    `end`."""
    out, line, directive, fresh = [], 1, False, True
    for m in TOKEN.finditer(text):
        kind, word = m.lastgroup, m[0]
        if kind == "newline":
            if directive:
                out.append(Token("end", ";", line))
            directive, fresh = False, True
        elif kind != "skip":
            directive = directive or fresh and word == "#"
            fresh = False
            out.append(Token(kind, word, line))
        line += word.count("\n")
    return out


def statements(tokens):
    """Yields the statements as lists of tokens. Semicolons and braces end a statement."""
    current = []
    for t in tokens:
        if t.text in (";", "{", "}") and t.kind != "string":
            if current:
                yield current
            current = []
        else:
            current.append(t)
    if current:
        yield current


def functions_of(text):
    """Returns (name, whether it is static) for each function that a file defines or declares."""
    for m in re.finditer(r"^(?!typedef\b|return\b|else\b)([a-z][\w *]*?[ *])(\w+)\(", text, re.M):
        yield m[2], m[1].startswith("static")


def question_marks(statement):
    return [t for t in statement if t.text == "?"]


def is_comma_return(statement):
    """Returns whether the statement is like `return a(), b;` or `return x ? (a(), b) : c;`. A comma
    between arguments does not count."""
    for start, t in enumerate(statement):
        if t.text == "return":
            break
    else:
        return False
    call = []  # for each open parenthesis: whether it holds arguments
    previous = statement[start]
    for t in statement[start + 1:]:
        if t.text in ("(", "["):
            is_call = previous.kind == "word" and previous.text not in NOT_A_CALL
            call.append(t.text == "[" or is_call or previous.text in (")", "]"))
        elif t.text in (")", "]") and call:
            call.pop()
        elif t.text == "," and t.kind == "mark" and not (call and call[-1]):
            return True
        previous = t
    return False


def called_choice(tokens):
    """Returns the lines of `(a ? f : g)(...)`, where the result of what is in the parentheses is
    called."""
    stack = []  # (token before the parenthesis, whether a ? is in it)
    for i, t in enumerate(tokens):
        if t.kind == "string":
            continue
        if t.text == "(":
            stack.append([tokens[i - 1] if i else None, False])
        elif t.text == "?" and stack:
            stack[-1][1] = True
        elif t.text == ")" and stack:
            before, chosen = stack.pop()
            follows = tokens[i + 1].text if i + 1 < len(tokens) else ""
            is_call = before is not None and before.kind == "word" and before.text != "return"
            if chosen and follows == "(" and not is_call:
                yield t.line


def chosen_function(statement, functions):
    """Returns the lines of `a ? f : g` where one of the two is the name of a function and the other
    one is, too, or is NULL."""
    statement = [t for t in statement if t.text != "&"]
    for i, t in enumerate(statement):
        one, colon, other, follows = ([t.text for t in statement[i + 1:i + 5]] + [""] * 4)[:4]
        if t.text != "?" or colon != ":" or follows not in ("", ",", ")"):
            continue
        names = {one, other} - {"NULL"}
        if names and names <= functions:
            yield t.line


def raw_hex(tokens):
    """Returns the lines with a hexadecimal number that stands neither in the definition of a name
    nor in the layout of a structure (the size of a reserved member, a _Static_assert). 0xff, a byte
    of ones, is allowed."""
    for statement in statements(tokens):
        first = statement[0].text
        if first in ("#", "_Static_assert"):
            continue
        for i, t in enumerate(statement):
            if t.kind != "number" or not re.match(r"0[xX](?!ff[uUlL]*$)", t.text):
                continue
            # an enumerator: NAME = 0x10
            if i >= 2 and statement[i - 1].text == "=" and statement[i - 2].text.isupper():
                continue
            if any(w.text.startswith("reserved") for w in statement):
                continue
            yield t.line


def columns(line):
    return len(line) + 3 * line.count("\t")


def places(path, text, functions):
    """Returns [(measure, line)] of one file."""
    if path.endswith(PROSE):
        for number, line in enumerate(text.split("\n"), 1):
            if columns(line) > WIDTH and not line.lstrip().startswith("|"):
                yield "prose", number
        return
    if path.endswith(WIDE):
        for number, line in enumerate(text.split("\n"), 1):
            if columns(line) > WIDTH:
                yield "wide", number
    if not path.endswith(CODE):
        return
    tokens, chosen = tokens_of(text), set()
    for statement in statements(tokens):
        marks = question_marks(statement)
        for t in marks:
            yield "ternary", t.line
        if len(marks) > 1:
            yield "nested", marks[0].line
        if is_comma_return(statement):
            yield "comma", statement[0].line
        chosen.update(chosen_function(statement, functions))
    for line in sorted(chosen | set(called_choice(tokens))):
        yield "function", line
    if path.startswith("hv/virt/"):
        for line in raw_hex(tokens):
            yield "hex", line


def room(path):
    parts = path.split("/")[:-1]
    depth = 2 if parts and parts[0] in ("hv", "tests") else 1
    return "/".join(parts[:depth]) or "."


def sources(paths):
    """Returns the files to be measured: those that `paths` name, and those in directories that
    `paths` name. Files that are built are no sources."""
    out = set()
    for path in paths or ["."]:
        names = [os.path.join(ROOT, path)]
        for directory, inner, files in os.walk(names[0]):
            inner[:] = [name for name in inner if name not in ("build", ".git", "__pycache__")]
            names += [os.path.join(directory, name) for name in files]
        out.update(os.path.relpath(name, ROOT) for name in names if os.path.isfile(name))
    return sorted(path for path in out if path.endswith(WIDE + PROSE))


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def measure(files):
    """Returns ({path: Counter}, {measure: ["file:line"]}). `files` is {path: text}."""
    everywhere, own = set(), defaultdict(set)
    for path, text in files.items():
        if path.endswith(CODE):
            for name, is_static in functions_of(text):
                (own[path] if is_static else everywhere).add(name)
    counters, found = {}, defaultdict(list)
    for path, text in files.items():
        counters[path] = Counter(lines=len(lines_of(path, text)) if path.endswith(CODE) else 0)
        for what, line in places(path, text, everywhere | own[path]):
            counters[path][what] += 1
            found[what].append(f"{path}:{line}")
    return counters, found


def total(counters):
    """Returns the sum of the counters of all paths."""
    return sum(counters.values(), Counter())


def by_room(counters):
    """Returns {room: sum of the counters of its paths}, sorted by name."""
    rooms = defaultdict(Counter)
    for path, counter in counters.items():
        rooms[room(path)].update(counter)
    return dict(sorted(rooms.items()))


def value(counter, what):
    if what != "ternary":
        return counter[what]
    return 100 * counter[what] / counter["lines"] if counter["lines"] else 0.0


def shown(counter, what):
    v = value(counter, what)
    return f"{v:.2f}" if isinstance(v, float) else str(v)


def table(counters):
    """Returns lines of text: a heading, one row for each room, the sum, and the limits."""
    rows = [("room", "lines", [m.column for m in MEASURES.values()])]
    for name, counter in [*by_room(counters).items(), ("all", total(counters))]:
        rows.append((name, counter["lines"], [shown(counter, what) for what in MEASURES]))
    rows.append(("limit", "", [m.limit for m in MEASURES.values()]))
    for name, lines, values in rows:
        yield f"{name:16} {lines:>7}" + "".join(f" {v:>8}" for v in values)


def failures(counters):
    """Returns a sentence for each measure of a room that is beyond its limit."""
    for name, counter in by_room(counters).items():
        for what, m in MEASURES.items():
            v = shown(counter, what)
            if float(v) > m.limit:
                yield f"{m.title}: {v} in {name}, limit {m.limit}"


def main():
    paths = [os.path.relpath(os.path.abspath(p), ROOT) for p in sys.argv[1:]]
    counters, found = measure({p: read(p) for p in sources(paths)})
    if not counters:
        raise sentence.Problem(f"{' '.join(paths) or ROOT}: no source of the project is there")
    for what, m in MEASURES.items():
        if found[what] and (paths or m.limit == 0):
            print(f"{m.title}:", *found[what], sep="\n  ")
    print(*table(counters), sep="\n")
    failed = list(failures(counters))
    for what in failed:
        print(f"golf: {what}")
    return bool(failed)


if __name__ == "__main__":
    sentence.run(main)
