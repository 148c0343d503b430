/* A PC's keyboard, as an input of the shell. The first half of this file turns scan codes, the
 * numbers by which a keyboard reports that a key went down or up, into the bytes that a terminal
 * would send. The second half drives the keyboard's controller, the 8042 (IBM PS/2 Hardware
 * Interface Technical Reference, keyboard and auxiliary device controller). Keyboards send scan
 * codes of "set 2". We let the controller translate them to the simpler "set 1", in which bit 7
 * tells that a key was let go. */
#include "platform/keyboard.h"

#include <takt/io.h>
#include "lib/printf.h"
#include "common/string.h"
#include "platform/irq.h"
#include "common/insn.h"

/* ---- from scan codes to bytes ---- */

enum {
    KEY_ENTER = 0x1c,
    KEY_CTRL = 0x1d,
    KEY_LEFT_SHIFT = 0x2a,
    KEY_SLASH = 0x35,
    KEY_RIGHT_SHIFT = 0x36,
    KEY_CAPS = 0x3a,
    KEYPAD = 0x47, /* its first key */
};

#define RELEASED   0x80 /* added to the code of a key that is let go */
#define EXTENDED   0xe0 /* before the code of a key that the first keyboards did not have */
#define PAUSE      0xe1 /* begins the code of the Pause key */
#define PAUSE_REST 5    /* bytes of it that follow */

/* What a key stands for, by scan code, alone and with Shift; 0: nothing. */
static const char unshifted[] =
    "\0\x1b"
    "1234567890-=\x7f\tqwertyuiop[]\r\0asdfghjkl;'`\0\\zxcvbnm,./\0*\0 ";
static const char shifted[] = "\0\x1b"
                              "!@#$%^&*()_+\x7f\tQWERTYUIOP{}\r\0ASDFGHJKL:\"~\0|ZXCVBNM<>?\0*\0 ";

/* The keys of the keypad without Num Lock. The cursor keys beside it have the same codes behind
 * EXTENDED. Each is the last letter of a terminal's sequence; '-' and '+' are themselves, 'E' is
 * Delete. */
static const char keypad[] = "HA\0-D\0C+FB\0\0E";

/* Writes what a key of the keypad stands for: a terminal's escape sequence, such as ESC [ A for
 * cursor up, or nothing. */
static void keypad_key(u8 key, char out[KEY_BYTES]) {
    u32 n = key - KEYPAD;
    char c = 0;

    if (n < sizeof(keypad) - 1) c = keypad[n];
    if (c == '-' || c == '+')
        hv_snprintf(out, KEY_BYTES, "%c", c);
    else if (c == 'E')
        hv_snprintf(out, KEY_BYTES, "\x1b[3~");
    else if (c)
        hv_snprintf(out, KEY_BYTES, "\x1b[%c", c);
}

static bool is_letter(char c) { return c >= 'a' && c <= 'z'; }

/* Returns the byte for a key of the main field, given which modifiers are held; 0 if the key stands
 * for nothing. Caps Lock reverses Shift for letters only. */
static char main_key(const struct keys *k, u8 key) {
    bool shift = k->shift;
    char c;

    if (key >= sizeof(unshifted) - 1) return 0;
    if (is_letter(unshifted[key])) shift = k->shift != k->caps;
    if (shift)
        c = shifted[key];
    else
        c = unshifted[key];
    if (k->ctrl && c >= '@') c &= 0x1f; /* as a terminal does it: ^A is 1 */
    return c;
}

/* Remembers which modifiers are held. Shift behind EXTENDED is left out: no person pressed it, the
 * keyboard makes it up around the codes of the cursor keys, for programs that know only the oldest
 * keyboards. */
static void key_modifier(struct keys *k, u8 key, bool down, bool extended) {
    if (key == KEY_CTRL) k->ctrl = down;
    if (!extended && (key == KEY_LEFT_SHIFT || key == KEY_RIGHT_SHIFT)) k->shift = down;
    if (key == KEY_CAPS && down) k->caps = !k->caps;
}

/* Takes one scan code of the keyboard, and writes the text that it stands for to `out`. A key may
 * take several codes: EXTENDED comes before its own code, and Pause has a long code of its own that
 * is skipped. So `k` remembers between calls what came before. */
void keys_feed(struct keys *k, u8 code, char out[KEY_BYTES]) {
    bool extended = k->extended, down = !(code & RELEASED);
    u8 key = code & (u8)~RELEASED;

    *out = 0;
    k->extended = false;
    if (k->skip) {
        k->skip--;
    } else if (code == PAUSE) {
        k->skip = PAUSE_REST;
    } else if (code == EXTENDED) {
        k->extended = true;
    } else {
        key_modifier(k, key, down, extended);
        if (!down) return;
        if (key >= KEYPAD) {
            keypad_key(key, out);
        } else if (!extended || key == KEY_ENTER || key == KEY_SLASH) {
            out[0] = main_key(k, key);
            out[1] = 0;
        }
    }
}

/* ---- the controller ---- */

#define PORT_DATA      0x60
#define PORT_STATUS    0x64   /* reads the status, writes a command */
#define STATUS_OUT     BIT(0) /* it has a byte for us */
#define STATUS_IN      BIT(1) /* it has not taken ours yet */
#define STATUS_MOUSE   BIT(5) /* the byte is the mouse's */
#define NOBODY_ANSWERS 0xff   /* what a port reads that no device drives */
#define CMD_READ       0x20   /* the controller's configuration byte: */
#define CMD_WRITE      0x60
#define CONFIG_IRQ     BIT(0) /* the keyboard interrupts */
#define CONFIG_MOUSE   BIT(1) /* the mouse interrupts */
#define CONFIG_OFF     BIT(4) /* the keyboard is switched off */
#define CONFIG_SET1    BIT(6) /* translates to scan code set 1 */
#define ENABLE         0xf4   /* to the keyboard: report keys */
#define POLLS          20000  /* about a microsecond each */
#define KEYBOARD_IRQ   1
#define AT_ONCE        16 /* bytes that one interrupt takes */

static void (*heard)(const char *s, unsigned n);
static struct keys keys;

/* Waits until `bit` of the controller's status is `value`; false if that takes too long (about 20
 * ms), so that a broken controller cannot hang the boot. */
static bool keyboard_wait(u8 bit, u8 value) {
    for (u32 i = 0; i < POLLS; i++, cpu_relax())
        if ((inb(PORT_STATUS) & bit) == value) return true;
    return false;
}

/* Writes a byte to the controller after it has taken the last one. Returns false if it never
 * does. */
static bool keyboard_send(u16 port, u8 v) {
    if (!keyboard_wait(STATUS_IN, 0)) return false;
    outb(port, v);
    return true;
}

/* Throws away the bytes that wait in the controller, at most AT_ONCE of them. */
static void keyboard_drain(void) {
    for (u32 i = 0; i < AT_ONCE && inb(PORT_STATUS) & STATUS_OUT; i++) (void)inb(PORT_DATA);
}

/* Makes the controller report keys by interrupt and as set 1, and switches the keyboard on. The
 * mouse's interrupt is switched off, as nobody would take its bytes. Returns false if there is no
 * controller, or if it does not answer in time. */
static bool switch_on(void) {
    u8 config;

    if (inb(PORT_STATUS) == NOBODY_ANSWERS) return false;
    keyboard_drain();
    if (!keyboard_send(PORT_STATUS, CMD_READ) || !keyboard_wait(STATUS_OUT, STATUS_OUT))
        return false;
    config = inb(PORT_DATA);
    config |= CONFIG_IRQ | CONFIG_SET1;
    config &= (u8) ~(CONFIG_OFF | CONFIG_MOUSE);
    if (!keyboard_send(PORT_STATUS, CMD_WRITE) || !keyboard_send(PORT_DATA, config) ||
        !keyboard_send(PORT_DATA, ENABLE))
        return false;
    keyboard_wait(STATUS_OUT, STATUS_OUT); /* its acknowledgement, which nobody needs */
    keyboard_drain();
    return true;
}

/* The handler of the keyboard's interrupt. It takes at most AT_ONCE bytes, so that a keyboard that
 * sends without end cannot keep the pCPU here. */
static void on_key(void *arg) {
    for (u32 i = 0; i < AT_ONCE; i++) {
        u8 status = inb(PORT_STATUS), code;
        char out[KEY_BYTES];

        if (!(status & STATUS_OUT)) return;
        code = inb(PORT_DATA);
        if (status & STATUS_MOUSE) continue;
        keys_feed(&keys, code, out);
        if (*out) heard(out, (unsigned)strlen(out));
    }
}

/* Switches the keyboard and its interrupt on; input() then gets the text of each key. Returns false
 * if there is no keyboard controller or its interrupt cannot be connected. In that case the
 * function undoes what it has set up, so that the interrupt pin stays masked and the vector is free
 * for others. */
bool keyboard_start(const struct acpi_info *a, void (*input)(const char *s, unsigned n)) {
    u32 flags = 0, gsi;
    int vector;

    heard = input;
    /* Without a controller the two ports may belong to any other device. */
    if (a->no_keyboard_controller || !switch_on()) return false;
    gsi = acpi_line(a, KEYBOARD_IRQ, &flags);
    vector = irq_alloc(on_key, NULL);
    if (vector < 0) return false;
    if (irq_pin_connect(gsi, vector, flags)) {
        irq_free(vector);
        return false;
    }
    irq_pin_mask(gsi, false);
    /* A byte that came before the pin was connected raised the line then, and there is no
     * further edge as long as nobody reads it. */
    keyboard_drain();
    return true;
}
