/* nearest.c: the distance between words, in three rows of the table of prefixes. */
#include "attn_nearest.h"

#include <string.h>

#include "basics/mem.h"

/* The character as it is compared. */
static char fold(char c)
{
    if (c >= 'A' && c <= 'Z')
        return (char)(c - 'A' + 'a');
    return (char)(c == '-' ? '_' : c);
}

/* The distance between two words of at most ATTN_NEAREST_MAX characters. */
static size_t distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t rows[3][ATTN_NEAREST_MAX + 1]; /* rows[i % 3][j]: from i characters of a to j of b */
    for (size_t j = 0; j <= b_length; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *second = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            char x = fold(a[i - 1]), y = fold(b[j - 1]);
            row[j] = attn_min(above[j - 1] + (x != y), attn_min(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && x == fold(b[j - 2]) && y == fold(a[i - 2]))
                row[j] = attn_min(row[j], second[j - 2] + 1);
        }
    }
    return rows[a_length % 3][b_length];
}

const char *attn_nearest(const char *word, const char *const *names, size_t count)
{
    const char *nearest = NULL;
    size_t best = ATTN_NEAREST_MAX + 1, length = strnlen(word, ATTN_NEAREST_MAX + 1);
    for (size_t i = 0; i < count && length <= ATTN_NEAREST_MAX; i++) {
        size_t other = names[i] != NULL ? strnlen(names[i], ATTN_NEAREST_MAX + 1) : 0;
        if (other == 0 || other > ATTN_NEAREST_MAX)
            continue;
        size_t d = distance(word, length, names[i], other);
        if (d < best && d * 3 <= (length > other ? length : other)) {
            best = d;
            nearest = names[i];
        }
    }
    return nearest;
}
