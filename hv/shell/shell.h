/* The operator's shell: a line editor, and commands in tables, one file per family.
 *
 * Everything here runs on the housekeeping pCPU, as steps of one work item. A command that may take long or
 * print much is called again and again: it does a little each time and says when it wants to go on. It is
 * called only when the console has room for SHELL_STEP_ROOM bytes.
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
#define SHELL_COLUMNS   79 /* a table for a person is not wider: the 80th would wrap some terminals */
#define HELP_WIDTH      59
#define SHELL_STEP_ROOM 2048 /* what one call of a command may print */

/* A command's result beside 0 (done) and a negative errno (failed; say why by shell_fail, and print nothing):
 * call me again, at `at` or soon. */
#define SHELL_AGAIN 1

struct column;
struct vm;
struct vcpu;
struct sched_pool;

struct shell_call {
    int argc;
    char **argv;          /* argv[0] is the command; options are taken out */
    const char *opt[128]; /* by letter: what was given with it, "" if it takes nothing; NULL: not given */
    struct {
        const char *name, *value;
    } setting[SHELL_ARGS]; /* --NAME VALUE or --NAME=VALUE, with '_' for '-' in the name */
    u32 nr_settings;
    bool json;               /* opt['j'] */
    struct vm *vm;           /* the command's, or where a walk is; the shell drops the reference at the end */
    bool only;               /* a walk is over `vm` alone */
    struct sched_pool *pool; /* the command's */
    struct cpumask cpus;     /* the command's */
    /* for commands of several steps; zero at the first call */
    u32 step;                     /* counts the calls */
    u64 at;                       /* ns; 0 before each call */
    u32 index;                    /* the command's own; that of a vCPU in a walk */
    const struct column *columns; /* of the list that is the answer */
    u32 rows;                     /* of it so far */
    const char *eol; /* what ends a line of a table for a person: "\n", unless the command sets another */
    /* What is typed meanwhile is the command's (shell_key), which is called when there is some, and a timed
     * command ends it. Else ^C does, and the rest waits. */
    bool live;
    void (*end)(struct shell_call *c); /* called last in any case; may be NULL */
};

struct shell_command {
    const char *name;
    const char *usage; /* "VM VCPU|all CPUS|all" */
    /* What it does, as a sentence without subject and full stop: "shows the log". In the list of all
     * commands it has HELP_WIDTH characters. What stands behind a newline is shown by `help COMMAND`
     * alone, each line as wide as a terminal. */
    const char *help;
    int (*fn)(struct shell_call *c);
    /* What each operand is: V a VM, P a pool, C a list of CPUs (they are in the call before it begins), w a
     * word. Those behind ? may be missing, * is any number of words. */
    const char *operands;
    const char *options; /* as getopt's: "d:t:s"; all have -j as well. With a '-' at the end: --NAME VALUE */
};

/* Families, each ending with a NULL name; shell.c lists them. */
extern const struct shell_command host_commands[], vm_commands[], sched_commands[], trace_commands[],
    top_commands[], pci_commands[], store_commands[], cpu_commands[];

/* ---- for commands ---- */
void out(const char *fmt, ...) PRINTF(1, 2);
/* Puts a text of words into lines of at most SHELL_COLUMNS. The cursor is `indent` columns from the left, and
 * so far in begins each further line, which `eol` separates from the one before. A single word that is too
 * long is put as it is. */
void out_wrapped(const char *text, u32 indent, const char *eol);

/* The answer is a list, a table for a person and an array of objects in JSON; or a record, a line "head:
 * value" for each column and one object. Both come from the same columns and cells. A command sets c->columns
 * and gives rows; the shell puts the heads before them and the end behind them. */
struct column {
    const char *head; /* of the table; NULL: not in it */
    const char *key;  /* of the object; NULL: not in it */
    char type;        /* how the cell is told; 0 ends the columns:
                         s  text
                         n  a name, which is cut if it is longer than the column, but not with -l
                         w  text that goes on in further lines; of the last column alone
                         u  number            d  signed number     f  hundredths
                         t  nanoseconds, shown as seconds          b  yes or no
                         {  begins an object in the object, } ends it: their cells' texts as well */
    int width;        /* as printf's: negative is flush left */
    bool more;        /* of a table, this column is shown with -l alone, so that the others fit */
};
union cell {
    const char *s;
    u64 u;
    i64 d;
};
#define COLUMNS(id, ...) static const struct column id[] = { __VA_ARGS__, { 0 } }
#define COL(head, key, type, width)                                                                          \
    { head, key, type, width, false }
#define MORE(head, key, type, width)                                                                         \
    { head, key, type, width, true }
#define CELLS(...) ((const union cell[]){ __VA_ARGS__ })
#define S(text)    ((union cell){ .s = (text) })
#define U(number)  ((union cell){ .u = (number) })
#define D(number)  ((union cell){ .d = (number) })
void table_row(struct shell_call *c, const union cell *cells);
void table_end(struct shell_call *c); /* only to begin another one */
void record(struct shell_call *c, const struct column *columns, const union cell *cells);

int shell_fail(int error, const char *fmt, ...) PRINTF(2, 3); /* returns `error` */
int shell_usage(void);                                        /* -EINVAL, with the usage */
int shell_later(void);                                        /* SHELL_AGAIN, in a millisecond */
/* What came of it: 0, shell_later() for -EAGAIN, else shell_fail: "pool x is in use". */
int shell_done(int error, const char *kind, const char *name);
int shell_key(void);                                              /* the next byte that was typed, or -1 */
const struct shell_command *shell_command_at(u32 index);          /* all in turn; NULL at the end */
const struct shell_command *shell_command_find(const char *name); /* NULL: there is none */
const struct config *shell_config(void);                          /* what shell_init was given */

/* Each returns NULL or an error after shell_fail; a VM comes with a reference. */
struct vm *shell_vm(const char *name);
struct sched_pool *shell_pool(const char *name);
/* The value of a parameter of the pool or of a VM of it; 0 if its policy has none of that name. */
i64 shell_param(struct sched_pool *pool, const char *name, const void *object);
/* -EAGAIN for a VM that is being made or on its way out: nothing of its scheduling can be set. */
int shell_vm_pool(const struct vm *vm, struct sched_pool **pool);
int shell_new_name(const char *name); /* -EINVAL for what can be no VM's or pool's */
/* Walks, a call a step: to the next VM in c->vm, or the next vCPU; all there are, or those of the VM that
 * c->vm was at first, if c->only. False or NULL at the end. */
bool shell_next_vm(struct shell_call *c);
struct vcpu *shell_next_vcpu(struct shell_call *c);
const char *run_state_name(u32 state);

/* ---- what guests print: to whoever is attached, or to the log (guestcon.c) ---- */
void guestcon_init(bool to_log);
/* Moves a little of it to the log. Returns when to call it again: 0 soon, ~0 never. */
u64 guestcon_step(u64 now);
/* A VM's last words: all that it left behind, within reason. */
void guestcon_rest(struct vm *vm);
int cmd_console(struct shell_call *c);

/* ---- for main.c ---- */
/* Starts the shell on the console, and the script module if there is one. */
void shell_init(const struct config *c);
/* The host's connection to the store, at c->store_console if there is one. */
void store_host_init(const struct config *c);
/* The scheduler is recorded from now on and the records go to c->trace_console; called before there are
 * pools. */
void traces_record(const struct config *c);
/* A VM of the configuration could not be made. The log says why, and `top`, whose live table covers
 * the log after boot, says that there is something to read. */
void shell_vm_not_made(void);

/* ---- pieces that tests take apart ---- */
/* Splits a line at blanks, in place; quotes of both kinds hold words together, '#' before a word begins a
 * comment. Returns the number of words, -E2BIG for more than SHELL_ARGS, -EINVAL for a quotation mark that is
 * not closed. argv ends with NULL. */
int shell_split(char *line, char **argv);

#endif
