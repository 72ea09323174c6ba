/* secret.c: mkstemp makes files that their owner alone may read. */
#include "secret.h"

#include <check.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process.h"

/* What this process has written, and a test that fails leaves behind. */
static struct {
    pid_t writer;
    char path[SECRET_PATH];
} written[64];
static size_t num_written;

static void remove_written(void)
{
    for (size_t i = 0; i < num_written; i++)
        if (written[i].writer == getpid())
            unlink(written[i].path);
}

void secret_write(char path[SECRET_PATH], const char *text)
{
    if (num_written == 0)
        atexit(remove_written);
    ck_assert_uint_lt(num_written, sizeof written / sizeof written[0]);
    snprintf(path, SECRET_PATH, "/tmp/attnd-secret-XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    written[num_written].writer = getpid();
    memcpy(written[num_written++].path, path, SECRET_PATH);
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

void certificate_make_unsorted(char path[SECRET_PATH], const char *certificate)
{
    char command[512];
    secret_write(path, "");
    snprintf(command, sizeof command,
             "{ cat %s; openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "
             "-days 2 -subj /CN=other -keyout /dev/null; } > %s 2> /dev/null",
             certificate, path);
    ck_assert_int_eq(system(command), 0);
}

void certificate_end(const char *certificate, const char *key, time_t end)
{
    gnutls_x509_crt_t made;
    gnutls_x509_privkey_t signer;
    gnutls_datum_t pem;
    ck_assert_int_eq(gnutls_load_file(key, &pem), 0);
    ck_assert_int_eq(gnutls_x509_privkey_init(&signer), 0);
    ck_assert_int_eq(gnutls_x509_privkey_import2(signer, &pem, GNUTLS_X509_FMT_PEM, NULL, 0), 0);
    gnutls_free(pem.data);
    ck_assert_int_eq(gnutls_x509_crt_init(&made), 0);
    ck_assert_int_eq(gnutls_x509_crt_set_version(made, 3), 0);
    ck_assert_int_eq(gnutls_x509_crt_set_serial(made, "\1", 1), 0);
    ck_assert_int_eq(gnutls_x509_crt_set_activation_time(made, end - 86400), 0);
    ck_assert_int_eq(gnutls_x509_crt_set_expiration_time(made, end), 0);
    ck_assert_int_eq(gnutls_x509_crt_set_key(made, signer), 0);
    ck_assert_int_eq(gnutls_x509_crt_sign2(made, made, signer, GNUTLS_DIG_SHA256, 0), 0);
    ck_assert_int_eq(gnutls_x509_crt_export2(made, GNUTLS_X509_FMT_PEM, &pem), 0);
    FILE *file = fopen(certificate, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(pem.data, 1, pem.size, file), pem.size);
    ck_assert_int_eq(fclose(file), 0);
    gnutls_free(pem.data);
    gnutls_x509_crt_deinit(made);
    gnutls_x509_privkey_deinit(signer);
}
