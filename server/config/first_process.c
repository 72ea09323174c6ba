/* first_process.c: the first process of a container's name space is the daemon, or an init whose
 * command line ends with the daemon's.  Outside containers the first process is neither. */
#include "config/config.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

bool srv_first_process_read(struct srv_first_process *out, const char *path)
{
    size_t length = 0;
    ssize_t got = 1;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    out->count = 0;
    while (fd >= 0 && got > 0 && length < sizeof out->text) {
        got = read(fd, out->text + length, sizeof out->text - length);
        length += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0)
        close(fd);
    if (got != 0 || length == 0 || out->text[length - 1] != '\0')
        return false;
    for (size_t at = 0; at < length; at += strlen(out->text + at) + 1) {
        char *word = out->text + at;
        if (out->count == SRV_FIRST_WORDS)
            return false;
        const char *slash = strrchr(word, '/');
        if (out->count > 0 || strcmp(slash != NULL ? slash + 1 : word, "attnd") == 0)
            out->words[out->count++] = word;
    }
    static char health[] = "--health-check";
    if (out->count == 0)
        return false;
    out->words[out->count++] = health;
    out->words[out->count] = NULL;
    return true;
}
