/* Finds the name that a person meant who mistyped it, for messages such as 'unknown key "memry": is
 * it memory?'. A slip is a letter that is wrong, missing, or one too many, or two letters
 * exchanged. */
#include "lib/nearest.h"
#include "common/string.h"

#define MAX_LENGTH 31 /* longer words are not compared */
#define FAR        3  /* with so many slips, another name was meant */

/* Returns the number of slips between two words: the optimal string alignment distance. Row i of
 * its table holds the distances from the first i letters of `a` to every beginning of `b`. Only
 * three rows are kept. */
static u32 distance(const char *a, const char *b) {
    u32 rows[3][MAX_LENGTH + 1], *before = rows[0], *last = rows[1], *row = rows[2], *oldest;
    size_t n = strlen(a), m = strlen(b);

    if (n > MAX_LENGTH || m > MAX_LENGTH) return FAR;
    for (size_t j = 0; j <= m; j++) last[j] = (u32)j;
    for (size_t i = 1; i <= n; i++) {
        row[0] = (u32)i;
        for (size_t j = 1; j <= m; j++) {
            row[j] = MIN(last[j], row[j - 1]) + 1;
            row[j] = MIN(row[j], last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = MIN(row[j], before[j - 2] + 1);
        }
        oldest = before;
        before = last;
        last = row;
        row = oldest;
    }
    return last[m];
}

/* Keeps `name` as the best one so far, if it is nearer to the word that was typed than all names
 * before it. A name of which the person has typed only the beginning counts as one slip. */
void nearest_offer(struct nearest *n, const char *name) {
    size_t length = strlen(n->wanted);
    u32 d = distance(n->wanted, name);

    if (length >= 3 && strncmp(n->wanted, name, length) == 0) d = MIN(d, 1u);
    /* Most letters have to be right: otherwise any short word would be like any other. */
    if (d >= FAR || d * 2 >= length || (n->best && n->distance <= d)) return;
    n->best = name;
    n->distance = d;
}
