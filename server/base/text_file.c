/* text_file.c: from a path to a text in memory, within a bound.
 *
 * The mode of a file of secrets must keep others out: a file that everyone may read holds no
 * secret, and one that everyone may write would let anyone in.  The group may read it, as that is
 * how secrets reach a container whose user is not the owner. */
#include "base/text_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_private(FILE *file, const char *path, char *message, size_t size)
{
    struct stat about;
    if (fstat(fileno(file), &about) != 0) {
        snprintf(message, size, "%s: %s", path, strerror(errno));
        return false;
    }
    if ((about.st_mode & S_IRWXO) == 0 && (about.st_mode & S_IWGRP) == 0)
        return true;
    snprintf(message, size,
             "%s: holds a secret, but has mode %04o: others must not read it, nor its group "
             "write it (chmod 600, or 640)",
             path, (unsigned)(about.st_mode & 07777));
    return false;
}

bool srv_text_read(char **out, size_t *length, const char *path, size_t limit,
                   enum srv_text_kind kind, char *message, size_t size)
{
    bool whole = false;
    FILE *file = fopen(path, "rbe");
    char *text = file != NULL ? malloc(limit + 2) : NULL;
    *length = 0;
    if (text == NULL) {
        snprintf(message, size, "%s: %s", path, strerror(errno));
    } else if (kind == SRV_TEXT_PUBLIC || is_private(file, path, message, size)) {
        setvbuf(file, NULL, _IONBF, 0); /* no second copy of a secret in stdio */
        *length = fread(text, 1, limit + 1, file);
        whole = ferror(file) == 0 && *length <= limit;
        if (ferror(file))
            snprintf(message, size, "%s: %s", path, strerror(errno));
        else if (!whole)
            snprintf(message, size, "%s: more than %zu bytes", path, limit);
    }
    if (file != NULL)
        fclose(file);
    if (whole) {
        text[*length] = '\0';
    } else {
        srv_text_wipe(text, *length);
        text = NULL;
    }
    *out = text;
    return whole;
}

void srv_text_wipe(char *text, size_t length)
{
    if (text != NULL)
        explicit_bzero(text, length);
    free(text);
}
