/* The operator's shell: a line editor, and commands in tables, one file for each family.
 *
 * Everything here runs on the housekeeping pCPU, as steps of one work item, so that a command never
 * keeps a pCPU from its guests for long. A command that may take long or print much is called again
 * and again: it does a little each time and says when it wants to go on. It is called only when the
 * console has room for SHELL_STEP_ROOM bytes.
 *
 * With -j a command answers with one JSON value. The shell puts it into an envelope of one line,
 * which no other output can imitate (RS is the byte 0x1e, as in RFC 7464; TAG was given as -j=TAG,
 * or is empty):
 *
 *   RS {"id": "TAG", "command": "list", "error": 0, "result": VALUE} LF
 *   RS {"id": "TAG", "command": "pause", "error": -2, "message": "one sentence"} LF
 */
#ifndef HV_SHELL_SHELL_H
#define HV_SHELL_SHELL_H

#include "config.h"
#include "lib/printf.h"

#define SHELL_ARGS 16 /* the most words of a command */
/* a table for a person is not wider: the 80th would wrap some terminals */
#define SHELL_COLUMNS   79
#define HELP_WIDTH      59   /* characters that a command's help has in the list of all commands */
#define SHELL_STEP_ROOM 2048 /* bytes that one call of a command may print */

/* A command returns 0 when it is done, a negative errno if it failed (after shell_fail() with the
 * reason, and without having printed anything), or SHELL_AGAIN to be called again: at the time `at`
 * if it has set that, else soon. */
#define SHELL_AGAIN 1

struct column;
struct vm;
struct vcpu;
struct sched_pool;

struct shell_call {
    int argc;
    char **argv;          /* argv[0] is the command's name; options are not in it; ends with NULL */
    const char *opt[128]; /* by letter: the option's value, "" if it takes none; NULL: not given */
    struct {
        const char *name, *value;
    } setting[SHELL_ARGS]; /* --NAME VALUE or --NAME=VALUE, with '_' for '-' in the name */
    u32 nr_settings;
    bool json; /* -j was given */
    /* The VM of operand V, or the one that shell_next_vm() has come to. The shell gives the
     * reference back at the end. */
    struct vm *vm;
    bool only;               /* shell_next_vm() and shell_next_vcpu() stay with `vm` */
    struct sched_pool *pool; /* the pool of operand P */
    struct cpumask cpus;     /* the CPUs of operand C */
    /* for commands of several steps; zero at the first call */
    u32 step; /* how many calls there were before */
    u64 at;   /* when the command wants to be called again, ns; 0 before each call */
    /* for the command's own use; shell_next_vcpu() has the number of the next vCPU here */
    u32 index;
    const struct column *columns; /* of the list that is the answer; NULL: it is none */
    u32 rows;                     /* rows of the list so far */
    const char
        *eol; /* what ends a line of a table for a person: "\n", unless the command sets another */
    /* If set, the command reads what is typed meanwhile (shell_key()) and is called when there is
     * something, and a timed command ends it. If not, ^C ends the command, and what is typed waits
     * for its end. */
    bool live;
    void (*end)(struct shell_call *c); /* called last, however the command ends; may be NULL */
};

struct shell_command {
    const char *name;
    const char *usage; /* its arguments: "VM VCPU|all CPUS|all" */
    /* What it does, as a sentence without subject and full stop: "shows the log". The list of all
     * commands has room for HELP_WIDTH characters of it. Only `help COMMAND` shows what follows a
     * newline; each line may be as wide as a terminal. */
    const char *help;
    int (*fn)(struct shell_call *c);
    /* What each operand is: V a VM, P a pool, C a list of CPUs, w a word. The shell looks V, P and
     * C up before it calls `fn`. Operands behind ? may be missing; * stands for any number of
     * words. */
    const char *operands;
    /* Option letters as getopt has them ("d:t:s": -d and -t take a value). A '-' at the end stands
     * for --NAME VALUE. -j need not be listed. */
    const char *options;
};

/* Families, each ending with a NULL name; shell.c lists them. */
extern const struct shell_command host_commands[], vm_commands[], sched_commands[],
    trace_commands[], top_commands[], pci_commands[], store_commands[], cpu_commands[],
    debug_commands[];

/* ---- for commands ---- */
void out(const char *fmt, ...) PRINTF(1, 2);
/* Prints text, broken between words into lines of at most SHELL_COLUMNS. The cursor is `indent`
 * columns from the left; further lines begin in that column, too. `eol` ends each line but the
 * last. A word that is too long for a line is not broken. */
void out_wrapped(const char *text, u32 indent, const char *eol);

/* An answer is a list or a record. A list is a table for a person, and an array of objects in JSON:
 * the command sets c->columns and calls table_row(), and the shell adds the heads and the end. A
 * record is a line "head: value" for each column, and one object in JSON: the command calls
 * record(). */
struct column {
    const char *head; /* in the table; NULL: the table does not have this column */
    const char *key;  /* in the object; NULL: the object does not have this column */
    /* What the cell holds and how it is shown; 0 ends the columns:
     *   s  text
     *   n  a name, which is cut if it is longer than the column, but not with -l
     *   w  text that goes on in further lines; of the last column alone
     *   u  number
     *   d  signed number
     *   f  hundredths
     *   t  nanoseconds, shown as seconds
     *   b  yes or no
     *   {  begins an object within the object; the cell is S("{")
     *   }  ends it; the cell is S("}") */
    char type;
    int width; /* as in printf(): if it is negative, the text is flush left */
    bool more; /* a table has this column only with -l, so that the others fit into a line */
};
union cell {
    const char *s;
    u64 u;
    i64 d;
};
#define COLUMNS(id, ...) static const struct column id[] = { __VA_ARGS__, { 0 } }
#define COL(head, key, type, width)                                                                \
    { head, key, type, width, false }
#define MORE(head, key, type, width)                                                               \
    { head, key, type, width, true }
#define CELLS(...) ((const union cell[]){ __VA_ARGS__ })
#define S(text)    ((union cell){ .s = (text) })
#define U(number)  ((union cell){ .u = (number) })
#define D(number)  ((union cell){ .d = (number) })
/* Prints a row. `cells` has one cell for each of c->columns. */
void table_row(struct shell_call *c, const union cell *cells);
/* Ends the list. Needed only if the command prints something after it. */
void table_end(struct shell_call *c);
void record(struct shell_call *c, const struct column *columns, const union cell *cells);

/* Keeps the sentence that says why the command fails. Returns `error`. */
int shell_fail(int error, const char *fmt, ...) PRINTF(2, 3);
/* Fails with the command's usage. Returns -EINVAL. */
int shell_usage(void);
/* Asks to be called again in a millisecond. Returns SHELL_AGAIN. */
int shell_later(void);
/* Turns the result of an operation on an object into that of the command: 0 is 0, -EAGAIN is
 * shell_later(), any other error is shell_fail() with a sentence such as "pool x is in use". */
int shell_done(int error, const char *kind, const char *name);
/* The next byte that was typed, or -1. */
int shell_key(void);
/* Command number `index` of all families. NULL: there are not so many. */
const struct shell_command *shell_command_at(u32 index);
/* The command of that name. NULL: there is none. */
const struct shell_command *shell_command_find(const char *name);
/* The configuration that shell_init() was given. */
const struct config *shell_config(void);

/* The VM of that name, with a reference, or the pool. NULL, after shell_fail(): there is none. */
struct vm *shell_vm(const char *name);
struct sched_pool *shell_pool(const char *name);
/* The value of a parameter of the pool or of a VM in it; 0 if the pool's policy has none of that
 * name. */
i64 shell_param(struct sched_pool *pool, const char *name, const void *object);
/* The pool of a VM. -EAGAIN, after shell_fail(): the VM is being made or destroyed, so that nothing
 * of its scheduling can be set. */
int shell_vm_pool(const struct vm *vm, struct sched_pool **pool);
/* Checks the name of a new VM or pool. -EINVAL, after shell_fail(): it cannot be one. */
int shell_new_name(const char *name);
/* Two iterators for commands that go over all VMs or vCPUs, one in each step. c->vm is NULL before
 * the first call; if c->only is set, it is the VM that the user named, and only that one is gone
 * over. The first puts the next VM into c->vm, with a reference, and returns false after the last;
 * the other returns the next vCPU, and NULL after the last. */
bool shell_next_vm(struct shell_call *c);
struct vcpu *shell_next_vcpu(struct shell_call *c);
/* The name of an RS_* state. */
const char *run_state_name(u32 state);

/* ---- what guests print goes to the attached terminal or to the log (guestcon.c) ---- */
void guestcon_init(bool to_log);
/* Moves a little of it to the log. Returns when to call it again, in ns: 0 soon, ~0 never. */
u64 guestcon_step(u64 now);
/* Logs what a VM has printed and nobody has read, up to a limit. Called when it has stopped. */
void guestcon_rest(struct vm *vm);
int cmd_console(struct shell_call *c);

/* ---- for main.c ---- */
/* Starts the shell on the console, and the script module if there is one. */
void shell_init(const struct config *c);
/* Starts the host's connection to the store, at c->store_console, if that names a port. */
void store_host_init(const struct config *c);
/* Starts the recording of the scheduler; the records go to c->trace_console. Call it before there
 * are pools: a replay begins with them. */
void traces_record(const struct config *c);
/* Notes that a VM of the configuration could not be made. The log says why; but the live table of
 * `top` may cover the log after boot, so it has a line that points there. */
void shell_vm_not_made(void);

/* ---- for tests ---- */
/* Splits a line at blanks, in place. Quotes of both kinds hold words together; '#' at the beginning
 * of a word begins a comment. Returns the number of words; argv then ends with NULL.
 *   -E2BIG   there are more than SHELL_ARGS words
 *   -EINVAL  a quotation mark is not closed */
int shell_split(char *line, char **argv);

#endif
