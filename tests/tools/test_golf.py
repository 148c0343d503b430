"""tools/golf.py: what counts as hard to read, and what does not."""
import golf
import pytest


def counted(text, path="hv/x.c"):
    """Returns {measure: lines} of a file with this text."""
    counters, found = golf.measure({path: text})
    return {
        what: [int(place.rpartition(":")[2]) for place in where] for what, where in found.items()
    }


def test_conditional_expressions_are_counted_and_strings_and_comments_are_not():
    code = '/* what? why: so */\nint a = b ? c : d;\nchar *s = "x ? y : z", q = \'?\';\n'
    assert counted(code) == {"ternary": [2]}


def test_two_in_one_statement():
    assert counted("a = b ? c : d;\ne = f ? g : h;\n") == {"ternary": [1, 2]}
    code = "a = b ? c :\n    d ? e : f;\nput(g ? h : i, j ? k : l);\n"
    assert counted(code) == {"ternary": [1, 2, 3, 3], "nested": [1, 3]}


def test_rows_of_a_table_and_lines_of_macros_are_apart():
    assert "nested" not in counted("int t[][1] = { { a ? 1 : 2 }, { b ? 1 : 2 } };\n")
    assert "nested" not in counted("#define A(x) ((x) ? 1 : 2)\n#define B(x) ((x) ? 3 : 4)\n")
    assert counted("#define A(x) \\\n    ((x) ? 1 : (y) ? 2 : 3)\n")["nested"] == [2]


@pytest.mark.parametrize("code", [
    "(on ? set : clear)(bit);",
    "void f(int x);\nvoid g(int x);\nhook = on ? f : g;",
    "static void f(int x) {}\nhook = on ? f : NULL;",
    "void f(int x);\nvoid g(int x);\ncall(on ? &f : &g, 1);",
])
def test_a_function_that_is_chosen(code):
    assert len(counted(code)["function"]) == 1


@pytest.mark.parametrize("code", [
    "if (a ? b : c) (void)d;",
    "int x = (a ? b : c) + d;",
    "void f(int x);\ny = a ? f(1) : f(2);",
    "int *f(int x);\ny = a ? size : other;",
])
def test_what_is_no_chosen_function(code):
    assert "function" not in counted(code)


@pytest.mark.parametrize("code, is_comma", [
    ("return free(a), -1;", True),
    ("if (x) return list_del(&c->link), false;", True),
    ("return x ? (put(x), 0) : -1;", True),
    ("return f(a, b);", False),
    ("return (struct pair){ a, b };", False),
    ("return t[f(a, b)] + (c);", False),
    ("for (a = 0, b = 1; a < b; a++) return a;", False),
])
def test_commas_behind_return(code, is_comma):
    assert ("comma" in counted(code)) == is_comma


@pytest.mark.parametrize("code, is_raw", [
    ("x = read(0x4000);", True),
    ("T t[] = { [0x6e] = { f } };", True),
    ("struct s a = { 0x12, 1 };", True),
    ("#define PIN 0x4000", False),
    ("enum { PIN = 0x4000, PORT = 0x4002 };", False),
    ("_Static_assert(offsetof(struct s, a) == 0x40, \"\");", False),
    ("struct s { u8 reserved_1[0x40 - 0x10]; };", False),
    ("memset(p, 0xff, 8);", False),
    ("x = 64;", False),
])
def test_hexadecimal_numbers_in_virt(code, is_raw):
    assert ("hex" in counted(code, "hv/virt/x.c")) == is_raw
    assert "hex" not in counted(code, "hv/vdev/x.c")


def test_width():
    line = "/" * 100
    assert counted(f"//{line}\n", "a.c") == {"wide": [1]}
    assert counted(f"{line}\n\t{line[4:]}\n", "a.sh") == {}
    assert counted(f"{line}\n\t{line[3:]}\n", "a.sh") == {"wide": [2]}
    assert counted(f"{line}x\n| {line}\n  | {line}\n", "docs/a.md") == {"prose": [1]}


def test_rooms():
    paths = ["Makefile", "boot/boot.asm", "hv/main.c", "hv/sched/core.c", "tests/unit/test_a.c"]
    assert [golf.room(p) for p in paths] == [".", "boot", "hv", "hv/sched", "tests/unit"]


def test_each_room_has_to_keep_the_limits():
    counters, _ = golf.measure({"hv/a/x.c": "return a, b;\n", "hv/b/x.c": "return a;\n"})
    assert list(golf.failures(counters)) == ["comma expressions behind return: 1 in hv/a, limit 0"]


def test_conditional_expressions_are_weighed_against_lines():
    line = "x = 1;\n"
    for others, failed in ((99, 1), (110, 0)):
        counters, _ = golf.measure({"a.c": line * others + "x = a ? b : c;\n"})
        assert len(list(golf.failures(counters))) == failed


def test_this_tree_is_within_the_limits():
    counters, _ = golf.measure({p: golf.read(p) for p in golf.sources([])})
    assert len(counters) > 500
    assert not list(golf.failures(counters))
