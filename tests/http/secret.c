/* secret.c: mkstemp makes files that their owner alone may read. */
#include "secret.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void secret_write(char path[SECRET_PATH], const char *text)
{
    snprintf(path, SECRET_PATH, "/tmp/attnd-secret-XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    ck_assert_int_eq(close(fd), 0);
}
