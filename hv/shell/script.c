/* Reads the lines of a script: commands for the shell with the times at which they are typed, such
 * as "@1500ms pause vm2" (that long after the start) or "+10ms list" (that long after the one
 * before). */
#include "shell/script.h"

#include "lib/parse.h"
#include "common/string.h"

/* Reads one line of a script into *out, and returns what kind of line it is. Empty lines and lines
 * that begin with '#' are nothing. */
enum script_line_kind script_line_read(const char *s, const char *end, struct script_line *out) {
    const char *blank = s;
    char time[24] = "";

    if (s == end || *s == '#') return SCRIPT_NOTHING;
    while (blank < end && *blank != ' ') blank++;
    memcpy(time, s, MIN((size_t)(blank - s), sizeof(time) - 1));
    if ((*s != '@' && *s != '+') || blank == end || parse_time(time + 1, &out->ns, NULL))
        return SCRIPT_WRONG;
    while (blank < end && *blank == ' ') blank++;
    out->since_before = *s == '+';
    out->command = blank;
    out->length = (size_t)(end - blank);
    return SCRIPT_COMMAND;
}
