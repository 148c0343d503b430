/* The operator's shell: a line editor, and commands in tables, one file per family.
 *
 * Everything here runs on the housekeeping pCPU, as steps of one work item. A command that may take long or
 * print much is called again and again: it does a little each time and says when it wants to go on. Its
 * output goes to a buffer that leaves as the console takes it; a command is called only when there is room
 * for SHELL_STEP_ROOM bytes.
 *
 * With -j a command prints one JSON value, which the shell puts into one line, an envelope that no other
 * output can imitate (RS is 0x1e, as in RFC 7464; TAG is what was given as -j=TAG, or empty):
 *
 *   RS {"id": "TAG", "command": "list", "error": 0, "result": VALUE} LF
 *   RS {"id": "TAG", "command": "pause", "error": -2, "message": "one sentence"} LF
 */
#ifndef HV_SHELL_SHELL_H
#define HV_SHELL_SHELL_H

#include "config.h"
#include "lib/printf.h"

#define SHELL_ARGS      16
#define SHELL_STEP_ROOM 2048 /* what one call of a command may print */

/* A command's result beside 0 (done) and a negative errno (failed; say why by shell_fail): call me again, at
 * `at` or soon; call me after shell_wake, or at `at` if that is set. Either call may come early. */
enum { SHELL_AGAIN = 1, SHELL_WAIT = 2 };

struct column;
struct vm;
struct vcpu;
struct sched_pool;

struct shell_call {
    int argc;
    char **argv;          /* argv[0] is the command; options are taken out */
    const char *opt[128]; /* by letter: what was given with it, "" if it takes nothing; NULL: not given */
    bool json;
    struct vm *vm;           /* the command's, or where a walk is; the shell drops the reference at the end */
    bool only;               /* a walk is over `vm` alone */
    struct sched_pool *pool; /* the command's */
    /* for commands of several steps; zero at the first call */
    u32 step;                     /* counts the calls */
    u64 at;                       /* ns; 0 before each call */
    u32 index;                    /* the command's own; that of a vCPU in a walk */
    const struct column *columns; /* of the list that is the answer */
    u32 rows;                     /* of it so far */
    const char *eol; /* what ends a line of a table for a person: "\n", unless the command sets another */
    bool stop;       /* the operator has had enough: no further call */
    void (*end)(struct shell_call *c); /* called last in any case; may be NULL */
    /* Hears what is typed meanwhile; NULL: ^C sets stop. */
    void (*typed)(struct shell_call *c, const char *s, unsigned n);
};

enum shell_takes { TAKES_WORDS, TAKES_VM, TAKES_POOL };

struct shell_command {
    const char *name;
    const char *usage; /* "VM VCPU|all CPUS|all" */
    const char *help;  /* one line */
    int (*fn)(struct shell_call *c);
    int least, most;        /* operands */
    enum shell_takes first; /* what the first one is, if given; found before the first call */
    const char *options;    /* as getopt's: "d:t:s"; NULL: none */
};

/* Families, each ending with a NULL name; shell.c lists them. */
extern const struct shell_command host_commands[], vm_commands[], sched_commands[], pool_commands[],
    trace_commands[], top_commands[];

/* ---- for commands ---- */
void out(const char *fmt, ...) PRINTF(1, 2);
/* One character of a guest, made harmless: what does not print becomes \xNN. */
void out_escaped(char c);
/* A list is a table for a person and an array of objects in JSON; both come from the same columns and cells.
 * A command sets c->columns and gives rows; the shell puts the heads before them and the end behind them. */
struct column {
    const char *head; /* of the table; NULL: not in it */
    const char *key;  /* of the object; NULL: not in it */
    char type; /* s text, u number, d signed number, f hundredths, t nanoseconds shown as seconds, b yes or
                  no, { begins an object in the object and } ends it: these two have no cell. 0 ends the
                  columns */
    int width; /* as printf's: negative is flush left */
};
union cell {
    const char *s;
    u64 u;
    i64 d;
};
#define COLUMNS(id, ...) static const struct column id[] = { __VA_ARGS__, { 0 } }
#define COL(head, key, type, width)                                                                          \
    { head, key, type, width }
#define CELLS(...) ((const union cell[]){ __VA_ARGS__ })
#define S(text)    ((union cell){ .s = (text) })
#define U(number)  ((union cell){ .u = (number) })
#define D(number)  ((union cell){ .d = (number) })
void table_row(struct shell_call *c, const union cell *cells);
void table_end(struct shell_call *c); /* only to begin another one */
/* One object; for a person a line for each: "head : value". */
void record(struct shell_call *c, const struct column *columns, const union cell *cells);

int shell_fail(struct shell_call *c, int error, const char *fmt, ...) PRINTF(3, 4); /* returns `error` */
int shell_usage(struct shell_call *c); /* -EINVAL, with the usage */
void shell_wake(void); /* a command that returned SHELL_WAIT wants to be called; from any pCPU */
const struct shell_command *shell_command_at(u32 index); /* all in turn; NULL at the end */
const struct config *shell_config(void);                 /* what shell_init was given */
/* The scheduler is recorded from now on and the records go to c->trace_console; called before there are
 * pools. */
void traces_record(const struct config *c);
void shell_at_end(void (*fn)(void)); /* to be called once all output is with the console */

/* NULL after shell_fail; a VM comes with a reference. */
struct vm *shell_vm(struct shell_call *c, const char *name);
/* False after shell_fail for a VM that is being made or on its way out: nothing of its scheduling can be
 * set. */
bool shell_vm_has_pool(struct shell_call *c, struct vm *vm);
struct sched_pool *shell_pool(struct shell_call *c, const char *name);
/* Walks, a call a step: to the next VM in c->vm, or the next vCPU; all there are, or those of the VM that
 * c->vm was at first, if c->only. False or NULL at the end. */
bool shell_next_vm(struct shell_call *c);
struct vcpu *shell_next_vcpu(struct shell_call *c);
const char *run_state_name(u32 state);

/* ---- for main.c ---- */
/* Starts the shell on the console, and the script module if there is one. Before VMs are created: it wants to
 * hear their consoles. */
void shell_init(const struct config *c);

/* ---- pieces that tests take apart ---- */
/* Splits a line at blanks, in place; quotes of both kinds hold words together, '#' before a word begins a
 * comment. Returns the number of words, -E2BIG for more than SHELL_ARGS, -EINVAL for a quotation mark that is
 * not closed. argv ends with NULL. */
int shell_split(char *line, char **argv);

#endif
