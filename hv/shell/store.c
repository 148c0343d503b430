/* The command `store`: the tree of named values ("nodes") that VMs, the hypervisor and programs on
 * the host share, as the operator sees it. Paths begin with /, or are taken as below
 * /local/domain/0. Also the host's connection to the store: it speaks the guests' protocol over a
 * serial port, so that programs outside of the machine can take part. */
#include <takt/errno.h>
#include "drivers/uart.h"
#include "lib/parse.h"
#include "common/string.h"
#include "platform/console.h"
#include "platform/timer.h"
#include "sched/machine.h"
#include "shell/shell.h"
#include "nodes/nodes.h"

#define NAME_SHOWN 128 /* the most characters of a node's name that are shown */

static struct store_client operator;

COLUMNS(node_columns, COL("Name", "name", 's', -24), COL("Value", "value", 's', 0));
COLUMNS(value_columns, COL("value", "value", 's', 0));
COLUMNS(perms_columns, COL("VM", "vm", 'u', 5), COL("Rights", "rights", 's', 0));
COLUMNS(event_columns, COL("Path", "path", 's', 0));

/* Returns what the command has to return after an operation on the node that it names. The store
 * refuses the operation while a long operation of another client goes on (hv/store/store.h). The
 * command is called again then. */
static int node_result(struct shell_call *c, int error) {
    if (error == -EBUSY) return shell_later();
    return shell_done(MIN(error, 0), "node", c->argv[2]);
}

/* Makes text of a value of `len` bytes, in place: what is no character becomes a dot. There has to
 * be room for the terminator. */
static char *printable(char *value, int len) {
    for (int i = 0; i < len; i++)
        if (value[i] < ' ' || value[i] > '~') value[i] = '.';
    value[len] = 0;
    return value;
}

/* Reads the next child's name of the node `of`. c->index is where it begins in the list of all
 * names. Returns its length, 0 if there is none left or it has no room in `names`, or a negative
 * errno. */
static int next_name(struct shell_call *c, const char *of, char *names, u32 size) {
    u32 from = c->index;
    u64 generation;

    return store_list(&operator, 0, of, names, size, &from, &generation);
}

/* Lists the children of a node with their values, one at each step. A long name is cut in the
 * table. */
static int verb_ls(struct shell_call *c) {
    static char names[XS_ABS_PATH_MAX + 1], path[XS_ABS_PATH_MAX + 1];
    const char *of = c->argv[2], *parent = of;
    char value[256];
    int n = next_name(c, of, names, NAME_SHOWN);

    c->columns = node_columns;
    if (n == 0) n = next_name(c, of, names, sizeof(names)); /* the name may be a long one */
    if (n <= 0) return node_result(c, n);
    c->index += (u32)strlen(names) + 1;
    if (strcmp(of, "/") == 0) parent = "";
    hv_snprintf(path, sizeof(path), "%s/%s", parent, names);
    n = store_read(&operator, 0, path, value, sizeof(value) - 1);
    if (strlen(names) > NAME_SHOWN) memcpy(names + NAME_SHOWN, "...", 4);
    table_row(c, CELLS(S(names), S(printable(value, MAX(n, 0)))));
    return SHELL_AGAIN;
}

/* Shows the value of a node. */
static int verb_read(struct shell_call *c) {
    static char value[SHELL_STEP_ROOM - 64];
    int n = store_read(&operator, 0, c->argv[2], value, sizeof(value) - 1);

    if (n < 0) return node_result(c, n);
    record(c, value_columns, CELLS(S(printable(value, n))));
    return 0;
}

/* Writes the value of a node. If a binding of the hypervisor refuses the value, it has left a
 * sentence in storelink_why, which is better than the name of the error. */
static int verb_write(struct shell_call *c) {
    int error;

    storelink_why[0] = 0;
    error = store_write(&operator, 0, c->argv[2], c->argv[3], (u32)strlen(c->argv[3]));
    if (error == -EINVAL && storelink_why[0]) return shell_fail(error, "%s", storelink_why);
    return node_result(c, error);
}

/* Removes a node and all below it. */
static int verb_rm(struct shell_call *c) {
    return node_result(c, store_rm(&operator, 0, c->argv[2]));
}

/* Without permissions: lists those that the node has, one at each step. With permissions: sets
 * them. */
static int verb_perms(struct shell_call *c) {
    struct store_perms p = { 0 };

    if (c->argc == 3) {
        int error = store_get_perms(&operator, 0, c->argv[2], &p);
        char letter[2] = "";

        if (error || c->index == p.nr) return node_result(c, error);
        c->columns = perms_columns;
        letter[0] = store_right[p.of[c->index].rights];
        table_row(c, CELLS(U(p.of[c->index++].id), S(letter)));
        return SHELL_AGAIN;
    }
    for (int i = 3; i < c->argc; i++, p.nr++)
        if (p.nr == STORE_MAX_PERMS || store_parse_perm(c->argv[i], &p, p.nr))
            return shell_fail(-EINVAL, "expected n, r, w or b and the number of a VM, not %s",
                              c->argv[i]);
    return node_result(c, store_set_perms(&operator, 0, c->argv[2], &p));
}

/* Ends the watch when `store watch` ends: the store need not tell of changes any more. */
static void end_watch(struct shell_call *c) {
    storelink_enter();
    store_unwatch(&operator, c->argv[2], "shell");
    storelink_leave();
}

/* Prints the path of each change at the node or below it, until a key is typed. */
static int verb_watch(struct shell_call *c) {
    static char event[XS_PAYLOAD_MAX];
    int error;

    if (shell_key() >= 0) return 0;
    c->live = true;
    c->columns = event_columns;
    if (!c->end) {
        error = store_watch(&operator, c->argv[2], "shell");
        if (error) return node_result(c, error);
        c->end = end_watch;
    }
    while (store_event(&operator, event)) table_row(c, CELLS(S(event)));
    return shell_later();
}

static const struct {
    const char *name;
    int least, most; /* words of the command, with "store" and the verb itself */
    int (*fn)(struct shell_call *c);
} verbs[] = {
    { "ls", 3, 3, verb_ls },       { "read", 3, 3, verb_read },
    { "write", 4, 4, verb_write }, { "rm", 3, 3, verb_rm },
    { "watch", 3, 3, verb_watch }, { "perms", 3, 3 + STORE_MAX_PERMS, verb_perms },
};

/* Opens the operator's connection, unless it is open. Returns false if that is not possible now. */
static bool opened(struct store_client *c) { return c->link.next || store_open(c, 0, true) == 0; }

/* Finds the function for the first word, such as `ls`, and calls it with the lock of the store
 * held. It works on the operator's connection. If the store is too busy to open that, the shell
 * runs the command again a little later. */
static int cmd_store(struct shell_call *c) {
    u32 i = 0;
    int r;

    if (c->argc == 2 && strcmp(c->argv[1], "ls") == 0) c->argv[c->argc++] = "/";
    while (i < ARRAY_SIZE(verbs) && (c->argc < 2 || strcmp(c->argv[1], verbs[i].name))) i++;
    if (i == ARRAY_SIZE(verbs) || c->argc < verbs[i].least || c->argc > verbs[i].most)
        return shell_usage();
    storelink_enter();
    if (opened(&operator))
        r = verbs[i].fn(c);
    else
        r = shell_later();
    storelink_leave();
    return r;
}

const struct shell_command store_commands[] = {
    { "store",
      "ls [PATH] | read PATH | write PATH VALUE | rm PATH | watch PATH | perms PATH [PERM...]",
      "reads and changes the store (docs/store.md)\n"
      "watch  tells each change until a key is pressed\n"
      "PERM   n, r, w or b and the number of a VM; the first one is the owner's",
      cmd_store, "*", "" },
    { 0 },
};

/* ---- the host ---- */

#define PORT_PERIOD NS_PER_MS
/* After so much silence a packet that is not complete is given up, and a broken connection begins
 * anew. */
#define PORT_QUIET NS_PER_S

static bool host_step(struct work *w);

static struct {
    struct work work;
    struct store_client client;
    struct uart uart;
    u8 out[UART_FIFO];
    u32 len, at; /* bytes of `out`, and how many of them are sent */
    u64 heard;   /* when the last byte came, ns */
} host = { .work.step = host_step };

/* Takes what has come over the port, and answers it. No byte is taken while an answer has not left,
 * or while a request waits for the store. If the port was quiet for PORT_QUIET in the middle of a
 * request, or after a malformed one, the begun request is forgotten, so that the next byte begins a
 * new one. */
static void host_receive(u64 now) {
    struct store_client *c = &host.client;

    store_feed(c, NULL, 0);
    for (u32 i = 0; i < UART_FIFO && !c->out_len && !store_waits(c); i++) {
        int b = uart_read(&host.uart);
        u8 byte = (u8)b;

        if (b < 0) break;
        store_feed(c, &byte, 1);
        host.heard = now;
    }
    if (now - host.heard < PORT_QUIET || (!c->bad && !c->in_have) || store_waits(c)) return;
    c->in_have = 0;
    if (c->bad && store_reset(c) == 0) c->bad = false;
}

/* One step of the work item that serves the host's connection: answers what has come, and sends
 * what the port takes without waiting. It never ends, so it always returns true. */
static bool host_step(struct work *w) {
    u64 now = machine_now();

    w->not_before = now + PORT_PERIOD;
    storelink_enter();
    if (opened(&host.client) && store_stream(&host.client) == 0) {
        host_receive(now);
        if (host.at == host.len) {
            host.len = store_drain(&host.client, host.out, sizeof(host.out));
            host.at = 0;
        }
    }
    storelink_leave();
    host.at += uart_write(&host.uart, (const char *)host.out + host.at, host.len - host.at);
    return true;
}

/* Connects the host's port to the store, if the configuration names one. A port at which nothing
 * can be done is only a warning: the hypervisor runs without this connection, too. */
void store_host_init(const struct config *c) {
    struct console_spec port;

    if (parse_console(c->store_console, &port, NULL) || !port.com) return;
    if (console_is_port(uart_port(port.com)))
        log_warn("store_console: com%u is the console's port", port.com);
    else if (!uart_init(&host.uart, uart_port(port.com), port.baud))
        log_warn("store_console: nothing answers at com%u", port.com);
    else
        work_add(&host.work);
}
