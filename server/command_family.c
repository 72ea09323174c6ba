/* command_family.c: attnd inspect --family: prints which keys and tensors of a family are read, and
 * how its layers attend.
 *
 * A program of the build, server/family_text/, prints that from the table in lib/families/.  The
 * binary has its text compressed: for each family its model_type, its name in replies and its
 * section, of which each ends with a NUL. */
#include "main.h"

#include <stdlib.h>

#include "base/embed.h"
#include "base/nearest.h"

#define MOST_BYTES ((size_t)4 << 20) /* of all sections, expanded */
#define MOST_NAMES 512               /* among which a misspelt one is looked for */

SRV_EMBED(families, "build/host/families.gz")

struct section {
    const char *type, *name, *text;
};

static const char *next_text(const char **at)
{
    const char *text = *at;
    *at += strlen(text) + 1;
    return text;
}

/* Takes the section at *at, which moves past it; false at the end. */
static bool next_section(struct section *out, const char **at, const char *end)
{
    if (*at >= end)
        return false;
    out->type = next_text(at);
    out->name = next_text(at);
    out->text = next_text(at);
    return true;
}

static void refuse(const char *family, const char *at, const char *end)
{
    const char *names[MOST_NAMES];
    size_t count = 0;
    for (struct section section; count + 2 <= MOST_NAMES && next_section(&section, &at, end);) {
        names[count++] = section.type;
        names[count++] = section.name;
    }
    const char *nearest = attn_nearest(family, names, count);
    fprintf(stderr,
            "attnd: inspect: --family must be a name that attnd inspect --family lists, not "
            "\"%.64s\"%s%s%s\n",
            family, nearest != NULL ? "; did you mean " : "", nearest != NULL ? nearest : "",
            nearest != NULL ? "?" : "");
}

int srv_command_family(const char *family)
{
    const struct srv_decompress_limits limits = {.most = MOST_BYTES};
    struct srv_error error = {0};
    char *text;
    size_t length;
    int status = 0;
    if (srv_decompress(&text, &length, SRV_GZIP, begin_families,
                       (size_t)(end_families - begin_families), &limits, &error) != SRV_OK) {
        fprintf(stderr, "attnd: inspect: %s\n", error.message);
        return 1;
    }
    const char *at = text, *end = text + length, *last = "";
    size_t count = 0;
    for (struct section section; next_section(&section, &at, end); last = section.type) {
        if (family[0] == '\0' &&
            strcmp(section.type, last) != 0) /* rows of one follow each other */
            printf("%s\n", section.type);
        if (strcmp(section.type, family) == 0 || strcmp(section.name, family) == 0)
            printf("%s%s", count++ > 0 ? "\n" : "", section.text);
    }
    if (family[0] != '\0' && count == 0) {
        refuse(family, text, end);
        status = 2;
    }
    free(text);
    return fflush(stdout) == 0 ? status : 1;
}
