/* secret.c: mkstemp makes files that their owner alone may read. */
#include "secret.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process.h"

void secret_write(char path[SECRET_PATH], const char *text)
{
    snprintf(path, SECRET_PATH, "/tmp/attnd-secret-XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    ck_assert_int_eq(close(fd), 0);
}

void certificate_make(char certificate[SECRET_PATH], char key[SECRET_PATH])
{
    certificate_make_valid(certificate, key, "2");
}

void certificate_make_valid(char certificate[SECRET_PATH], char key[SECRET_PATH], const char *days)
{
    struct process process;
    int status = 0;
    const char *const arguments[] = {"req",
                                     "-x509",
                                     "-newkey",
                                     "ec",
                                     "-pkeyopt",
                                     "ec_paramgen_curve:prime256v1",
                                     "-nodes",
                                     "-subj",
                                     "/CN=localhost",
                                     "-addext",
                                     "subjectAltName=DNS:localhost,IP:127.0.0.1",
                                     "-days",
                                     days,
                                     "-keyout",
                                     key,
                                     "-out",
                                     certificate,
                                     NULL};
    secret_write(certificate, "");
    secret_write(key, "");
    process_start_program(&process, "/usr/bin/openssl", arguments, NULL);
    bool ended = process_wait(&status, &process, 60);
    char *text = process_text(process.err);
    ck_assert_msg(ended && WIFEXITED(status) && WEXITSTATUS(status) == 0, "openssl: %s", text);
    free(text);
    process_end(&process);
}
