/* The screen that the boot loader has set up: either in text mode, where memory holds characters,
 * or a frame buffer, where it holds pixels and we draw the characters. During boot, text is drawn
 * at once. After the first key the screen is a terminal: the shell's output goes into struct
 * terminal, and a work item draws the cells (places for one character) that have changed, a few at
 * each step. Drawing is slow, and no step may keep guests waiting. */
#include "platform/screen.h"

#include "lib/printf.h"
#include "common/string.h"
#include "platform/hostmap.h"
#include "platform/terminal.h"
#include "common/insn.h"

#define CELL_W 6 /* pixels of a character, before they are doubled on large screens */
#define CELL_H 9
#define GREY   0xc0
#define LARGE  1280u /* pixels of a row: from here on characters are drawn twice as large */
/* A screen with fewer cells is of no use, and one with more bytes is not believed. */
#define LEAST_COLUMNS 20u
#define LEAST_ROWS    4u
#define MOST_BYTES    BIT(28)

/* VGA text: foreground in bits 8 to 11, background in 12 to 14; 7 is light grey */
#define TEXT_GREY    0x0700
#define TEXT_INVERSE 0x7000

/* ' ' to '~', 5 by 7: bit 5 * row + column. */
static const u64 font[95] = {
    0x000000000, 0x100421084, 0x00000294a, 0x295f57d4a, 0x11f4717c4, 0x632222263, 0x593511526,
    0x000000886, 0x208210888, 0x088842082, 0x009575480, 0x0084f9080, 0x088600000, 0x0000f8000,
    0x18c000000, 0x002222200, 0x3a33ae62e, 0x3884210c4, 0x7c444422e, 0x3a304111f, 0x211f4a988,
    0x3a3083c3f, 0x3a317844c, 0x08422221f, 0x3a317462e, 0x1910f462e, 0x00c6018c0, 0x0886018c0,
    0x208208888, 0x001f07c00, 0x088882082, 0x10044422e, 0x3ab5b422e, 0x463f8c62e, 0x3e317c62f,
    0x3a210862e, 0x1d318c527, 0x7c217843f, 0x04217843f, 0x7a31e862e, 0x4631fc631, 0x38842108e,
    0x19284211c, 0x452519531, 0x7c2108421, 0x4631ad771, 0x4639ace31, 0x3a318c62e, 0x04217c62f,
    0x59358c62e, 0x45257c62f, 0x3e107043e, 0x10842109f, 0x3a318c631, 0x11518c631, 0x2ab5ac631,
    0x462a22a31, 0x108454631, 0x7c222221f, 0x38421084e, 0x020820820, 0x39084210e, 0x000004544,
    0x7c0000000, 0x000002082, 0x7a3e83800, 0x3e319b421, 0x3a210b800, 0x7a31cda10, 0x383f8b800,
    0x084238a4c, 0x3a1e8c7c0, 0x46319b421, 0x388421804, 0x192843008, 0x24a32a421, 0x388421086,
    0x4635aac00, 0x46319b400, 0x3a318b800, 0x042f8bc00, 0x421ecd800, 0x04219b400, 0x3e0e0b800,
    0x324211c42, 0x5b318c400, 0x11518c400, 0x2ab58c400, 0x454454400, 0x3a1e8c400, 0x7c4447c00,
    0x208411088, 0x108421084, 0x088441082, 0x0008a8800,
};

static volatile u8 *cells; /* text: a character and its colour each; else pixels */
static u32 kind, pitch, bytes_per_cell, zoom, rows, columns, row, column;

/* Starts to use the screen that the boot loader has left, if Takt can use it. A screen of another
 * kind, too small, or with a size that makes no sense is not used; output then goes to the serial
 * port alone. */
void screen_init(const struct boot_screen *b) {
    u64 bytes = (u64)b->pitch * b->height;
    bool is_text = b->kind == SCREEN_TEXT;

    const char *how = "";

    if (is_text) {
        bytes_per_cell = 2;
        columns = b->width;
        rows = b->height;
    } else {
        how = ", drawn";
        bytes_per_cell = b->bits / 8;
        if (b->kind != SCREEN_PIXELS || bytes_per_cell < 3 || bytes_per_cell > 4) return;
        zoom = 1;
        if (b->width >= LARGE) zoom = 2;
        columns = b->width / (CELL_W * zoom);
        rows = b->height / (CELL_H * zoom);
    }
    pitch = b->pitch;
    if (columns < LEAST_COLUMNS || rows < LEAST_ROWS || (u64)b->width * bytes_per_cell > pitch ||
        bytes > MOST_BYTES)
        return;
    cells = mmio_map_wc(b->addr, bytes);
    if (!cells) return;
    kind = b->kind;
    log_info("screen: %u columns, %u rows%s", columns, rows, how);
}

/* Draws character `c` in cell (y, x) of a frame buffer. Its picture in `font` has 7 rows of 5 bits,
 * the lowest bit on the left. Each pixel of the font becomes zoom times zoom pixels. `inverse`
 * exchanges grey and black, which is how the cursor looks. */
static void draw_pixels(u32 y, u32 x, char c, bool inverse) {
    u32 height = CELL_H * zoom, width = CELL_W * zoom;
    u64 glyph = 0;

    if (c > ' ' && c <= '~') glyph = font[c - ' '];
    for (u32 py = 0; py < height; py++) {
        volatile u8 *p = cells + (u64)(y * height + py) * pitch + (u64)x * width * bytes_per_cell;
        u32 gy = py / zoom;

        for (u32 px = 0; px < width; px++, p += bytes_per_cell) {
            u32 gx = px / zoom;
            bool lit = gy < 7 && gx < 5 && glyph >> (gy * 5 + gx) & 1;
            u8 grey = 0;

            if (lit != inverse) grey = GREY;
            /* Grey and black are the same in every order of colours. */
            if (bytes_per_cell == 4)
                *(volatile u32 *)p = grey * 0x010101u;
            else
                p[0] = p[1] = p[2] = grey;
        }
    }
}

/* Draws one character, in whichever way the screen has. */
static void screen_draw(u32 y, u32 x, char c, bool inverse) {
    u16 colour = TEXT_GREY;

    if (inverse) colour = TEXT_INVERSE;
    if (kind == SCREEN_TEXT)
        *(volatile u16 *)(cells + y * pitch + x * 2) = (u16)(colour | (u8)c);
    else
        draw_pixels(y, x, c, inverse);
}

/* Clears row y. */
static void screen_blank(u32 y) {
    for (u32 x = 0; x < columns; x++) screen_draw(y, x, ' ', false);
}

/* Draws text at once, from where the last text ended. Only the row that is begun and the next one
 * are cleared, so that a reader sees where the newest text ends. */
void screen_write(const char *s, size_t n) {
    if (!cells) return;
    for (; n--; s++) {
        if (*s == '\n' || column == columns) {
            column = 0;
            row = (row + 1) % rows;
            screen_blank(row);
            screen_blank((row + 1) % rows);
        }
        if (*s >= ' ') screen_draw(row, column++, *s, false);
    }
    write_combined_flush();
}

/* ---- the terminal: what it shows, and what of it is drawn already ---- */

#define CURSOR 0x80 /* added to the character that is under it */
/* A step of a work item has to be short, and pixels are slow to write. So a step draws at most this
 * many characters, and compares at most LOOK_AT_ONCE. */
#define TEXT_AT_ONCE   512u
#define PIXELS_AT_ONCE 24u
#define LOOK_AT_ONCE   2048u

static struct terminal terminal;
static u8 drawn[TERMINAL_ROWS][TERMINAL_COLUMNS];
static bool is_terminal;
static u32 next_cell;    /* where the next step goes on */
static u32 left_to_look; /* cells, from next_cell on, that may differ from what is drawn */

bool screen_there(void) { return cells; }

/* Has screen_step() look at every cell again, as every cell may have changed. A round that is under
 * way goes on where it is. */
static void look_at_all(void) { left_to_look = terminal.columns * terminal.rows; }

/* Clears the screen, which is a terminal from now on. */
void screen_start_terminal(void) {
    if (!cells) return;
    terminal_init(&terminal, columns, rows);
    memset(drawn, 0, sizeof(drawn)); /* no character: all is drawn anew */
    is_terminal = true;
    next_cell = 0;
    look_at_all();
}

/* Gives text to the terminal in memory, if the screen is one. screen_step() draws what has
 * changed. */
void screen_feed(const char *s, size_t n) {
    if (!is_terminal || !n) return;
    terminal_write(&terminal, s, n);
    look_at_all();
}

/* Returns the character that should be in cell (y, x), with CURSOR added where the cursor is.
 * Behind the last column the cursor is shown in it. */
static u8 screen_wanted(u32 y, u32 x) {
    u8 c = (u8)terminal_at(&terminal, y, x);

    if (y == terminal.row && x == MIN(terminal.column, terminal.columns - 1)) c |= CURSOR;
    return c;
}

/* Draws some of the characters that have changed. Returns true if there may be more to draw. Goes
 * round all cells from where the last step ended, and draws those that differ from `drawn`. */
bool screen_step(void) {
    u32 all = terminal.columns * terminal.rows;
    u32 to_draw = PIXELS_AT_ONCE;

    if (!is_terminal) return false;
    if (kind == SCREEN_TEXT) to_draw = TEXT_AT_ONCE;
    for (u32 i = 0; i < LOOK_AT_ONCE && left_to_look && to_draw; i++) {
        u32 y = next_cell / terminal.columns, x = next_cell % terminal.columns;
        u8 c = screen_wanted(y, x);

        if (drawn[y][x] != c) {
            screen_draw(y, x, (char)(c & ~CURSOR), c & CURSOR);
            drawn[y][x] = c;
            to_draw--;
        }
        next_cell = (next_cell + 1) % all;
        left_to_look--;
    }
    write_combined_flush();
    return left_to_look;
}
