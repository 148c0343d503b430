"""tools/size.py: what is a line of code, and to which room it belongs."""
import size

SOURCE = """/* a comment
 * of two lines */
#define A 1 // one line of code

static const char *s = "/* text */";
"""

HEADER = """#define A 1
static inline int one(void) { return 1; }
struct s {
    int x;
};
static inline int two(int x) {
    if (x) {
        return 3;
    }
    return 2;
}
int three(void);
"""


def test_comments_and_blank_lines_do_not_count():
    assert size.code_of("a.c", SOURCE) == (2, 0)
    assert size.code_of("a.asm", "; a comment\n\nlabel:  mov eax, 1  ; and one behind\n") == (1, 0)


def test_of_headers_inline_functions_are_code():
    assert size.code_of("a.h", HEADER) == (7, 5)


def test_rooms():
    assert [size.room(p) for p in ("hv/main.c", "hv/sched/core.c", "boot/boot.asm")] == [
        "hv",
        "hv/sched",
        "boot",
    ]


def test_what_was_there_at_a_commit():
    assert size.code_at("no-such-commit") == {}
    now = size.code_at("HEAD")
    assert not now or now["hv/main.c"] > 100 and "hv/sched/policy.h" in now
