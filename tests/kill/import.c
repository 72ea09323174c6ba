/* import.c: sends a large state, and looks for its rows in the journals. */
#include "import.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "calls.h"
#include "mirror.h"

#define TOKENS 120000 /* 15 MiB of rows in two layers: 60 pieces */
#define ROW_BYTES (TINY / 2 * 2 * sizeof(float))
#define PATH "/sessions/large/state"
#define NAME 64
#define OTHERS ((size_t)4 << 20) /* bytes of caches that the other sessions stay below */

static struct mirror session;
static char *state;
static size_t size;

static const struct daemon *served;
static pthread_t sender;
static atomic_bool answered;
static long status;
static char newest[NAME]; /* journal when the import began; older ones hold earlier imports */

void import_open(void)
{
    mirror_fill(&session, TOKENS);
    state = mirror_state(&size, &session);
}

void import_close(void)
{
    mirror_end(&session);
    free(state);
}

static const struct request *request(void)
{
    static const char *const headers[] = {"Content-Type: application/octet-stream", NULL};
    static struct request put = {.method = "PUT", .path = PATH, .headers = headers};
    put.body = state;
    put.length = size;
    return &put;
}

static void *send_state(void *argument)
{
    struct answer answer;
    struct client client;
    (void)argument;
    client_open(&client, served);
    status = client_try(&answer, &client, request()) ? answer.status : 0;
    answer_free(&answer);
    client_close(&client);
    atomic_store(&answered, true);
    return NULL;
}

/* Returns the size of the largest journal among those named `first` or later; names sort by age.
 * Writes the newest name to `last` where that is not NULL. */
static size_t journal_bytes(char last[NAME], const char *directory, const char *first)
{
    DIR *stream = opendir(directory);
    size_t largest = 0;
    ck_assert_ptr_nonnull(stream);
    for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        struct stat facts;
        const char *end = strrchr(entry->d_name, '.');
        if (end == NULL || strcmp(end, ".journal") != 0 || strcmp(entry->d_name, first) < 0 ||
            fstatat(dirfd(stream), entry->d_name, &facts, 0) != 0)
            continue;
        largest = (size_t)facts.st_size > largest ? (size_t)facts.st_size : largest;
        if (last != NULL && strcmp(entry->d_name, last) > 0)
            snprintf(last, NAME, "%s", entry->d_name);
    }
    closedir(stream);
    return largest;
}

void import_begin(const struct daemon *daemon, const char *directory)
{
    served = daemon;
    newest[0] = '\0';
    journal_bytes(newest, directory, "");
    atomic_store(&answered, false);
    ck_assert_int_eq(pthread_create(&sender, NULL, send_state, NULL), 0);
    while (!atomic_load(&answered) && journal_bytes(NULL, directory, newest) < IMPORT_SEEN)
        continue;
}

bool import_was_interrupted(const char *directory)
{
    size_t bytes = journal_bytes(NULL, directory, newest);
    pthread_join(sender, NULL);
    return status == 0 && bytes >= IMPORT_SEEN && bytes < TOKENS * MIRROR_LAYERS * ROW_BYTES;
}

bool import_left_nothing(struct client *client)
{
    return call_status(client, "large") == 404 &&
           call_metric(client, "attnd_cache_used_bytes") < (double)OTHERS;
}

bool import_completes(struct client *client)
{
    uint64_t header;
    struct answer made = client_send(client, request()), back = client_get(client, PATH);
    bool whole = made.status == 201 && back.status == 200 && back.length > sizeof header;
    if (whole) {
        memcpy(&header, back.text, sizeof header);
        size_t data = sizeof header + (size_t)header;
        whole = mirror_holds(&session, back.text + data, back.length - data);
    }
    answer_free(&made);
    answer_free(&back);
    return whole;
}
