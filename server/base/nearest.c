/* nearest.c: lists of names, with the one that a word probably means. */
#include "base/nearest.h"

#include <stdio.h>
#include <string.h>

void srv_choices(char *out, size_t size, const char *word, const char *const *names, size_t count)
{
    const char *nearest = attn_nearest(word, names, count);
    char question[ATTN_NEAREST_MAX + 24] = "";
    if (nearest != NULL)
        snprintf(question, sizeof question, "; did you mean %s?", nearest);
    size_t used = 0, left = size - strlen(question) - sizeof ", ...";
    out[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        const char *name = used + strlen(names[i]) + 2 < left ? names[i] : "...";
        used += (size_t)snprintf(out + used, size - used, "%s%s", i > 0 ? ", " : "", name);
        if (name != names[i])
            break;
    }
    snprintf(out + used, size - used, "%s", question);
}
