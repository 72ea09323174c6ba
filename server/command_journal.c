/* command_journal.c: attnd journal check|salvage DIR.
 *
 * Both hold the directory's lock, so that no daemon changes the files meanwhile.  `check` needs no
 * configuration and changes nothing.  `salvage` begins with what a start does, so that damaged
 * files are set aside, and then saves what that start leaves out. */
#include "commands.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/endpoints.h"
#include "attn.h"
#include "config/config.h"
#include "memory.h"
#include "ops/log.h"
#include "ops/metrics.h"
#include "session/models.h"
#include "store/salvage.h"
#include "store/store.h"
#include "store/store_check.h"
#include "store/store_files.h"

#define TEXT_MAX ((size_t)64 << 20) /* of what is printed: a line for each file */

extern char **environ;

static const char usage[] = "usage: attnd journal check DIR | "
                            "attnd journal salvage DIR [--config FILE] [OPTION ...]";

static int fail(const char *path, const char *what)
{
    fprintf(stderr, "attnd: journal: %s%s%s\n", path, path[0] != '\0' ? ": " : "", what);
    return 1;
}

/* ---- check ----------------------------------------------------------------------------------- */

/* Opens the directory and locks it, and its lock file where it has one.  False with the reason in
 * *why. */
static bool open_directory(int *directory, int *lock_file, const char **why, const char *path)
{
    *lock_file = -1;
    *directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*directory >= 0)
        *lock_file = openat(*directory, SRV_LOCK_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool opened = *directory >= 0 && (*lock_file >= 0 || errno == ENOENT);
    bool locked = opened && srv_store_lock_directory(*directory) &&
                  (*lock_file < 0 || flock(*lock_file, LOCK_EX | LOCK_NB) == 0);
    *why = locked                           ? ""
           : opened && errno == EWOULDBLOCK ? "a running attnd uses it: stop that first"
                                            : strerror(errno);
    return locked;
}

static void close_directory(int directory, int lock_file)
{
    if (lock_file >= 0)
        close(lock_file);
    if (directory >= 0)
        close(directory);
}

static int print_check(const char *path, const struct srv_store_check *check,
                       const struct srv_buffer *text)
{
    if (text->length > 0)
        fwrite(text->data, 1, text->length, stdout);
    printf("%s: %zu files, %zu damaged; %zu were set aside\n", path, check->files, check->damaged,
           check->set_aside);
    if (check->later == 0)
        printf("a start serves %zu sessions; %zu have expired, %zu are lost\n", check->served,
               check->expired, check->lost);
    if (check->later > 0)
        printf("%zu are of another version: start the build that wrote them\n", check->later);
    else if (check->damaged > 0 || check->set_aside > 0)
        printf("attnd journal salvage %s --config FILE saves what can be saved of them\n", path);
    return check->damaged > 0 || check->lost > 0 || check->later > 0 || check->set_aside > 0 ||
           text->failed || fflush(stdout) != 0;
}

static int run_check(const char *path)
{
    char message[SRV_STORE_CHECK_MESSAGE];
    const char *why;
    int directory, lock_file, status = 1;
    struct srv_store_check check;
    struct srv_buffer text;
    if (!open_directory(&directory, &lock_file, &why, path)) {
        close_directory(directory, lock_file);
        return fail(path, why);
    }
    srv_buffer_init(&text, TEXT_MAX);
    if (srv_store_check(&check, &text, directory, message))
        status = print_check(path, &check, &text);
    else
        fail(path, message);
    srv_buffer_fini(&text);
    close_directory(directory, lock_file);
    return status;
}

/* ---- salvage --------------------------------------------------------------------------------- */

/* The parts that reading sessions takes. */
struct parts {
    struct srv_config config;
    struct srv_log log;
    struct srv_metrics *metrics;
    struct srv_models models;
    struct srv_memory memory;
    struct attn_cache_pool *pool;
    struct srv_sessions *sessions;
};

/* False with the message: also where the configuration names no model. */
static bool open_parts(struct parts *parts, char *message)
{
    struct srv_config *config = &parts->config;
    srv_log_open(&parts->log, (enum srv_log_level)config->log, STDERR_FILENO);
    snprintf(message, SRV_MESSAGE_MAX, "out of memory");
    return srv_metrics_open(&parts->metrics, &srv_routes) &&
           srv_models_open(&parts->models, config, message, SRV_MESSAGE_MAX) &&
           srv_memory_fit(&parts->memory, config, &parts->models, message, SRV_MESSAGE_MAX) &&
           attn_cache_pool_new(&parts->pool, config->limits.cache_bytes) == ATTN_OK &&
           srv_models_load(&parts->models, parts->pool, message, SRV_MESSAGE_MAX) &&
           srv_sessions_open(&parts->sessions, &config->limits, config->instance);
}

static void close_parts(struct parts *parts)
{
    srv_sessions_close(parts->sessions);
    srv_models_close(&parts->models);
    attn_cache_pool_free(parts->pool);
    srv_metrics_close(parts->metrics);
    srv_log_close(&parts->log);
    srv_config_fini(&parts->config);
}

static void wake_nobody(void *callback_context) { (void)callback_context; }

static struct srv_store_context store_context(struct parts *parts)
{
    const struct srv_config *config = &parts->config;
    return (struct srv_store_context){
        .durability = (enum srv_durability)config->durability,
        .fsync = (enum srv_journal_fsync)config->journal_fsync,
        .state_dir = config->state_dir,
        .naming = SRV_NAME_NONE,
        .journal_bytes = config->journal_bytes,
        .max_sessions = config->limits.max_sessions,
        .sessions = parts->sessions,
        .models = &parts->models,
        .pool = parts->pool,
        .metrics = parts->metrics,
        .log = &parts->log,
        .wake_engine_owner = wake_nobody,
        .reads_at_once = true, /* no thread reads anything later */
    };
}

static int by_epoch(const void *a, const void *b)
{
    const struct srv_salvage_served *x = a, *y = b;
    return (x->epoch > y->epoch) - (x->epoch < y->epoch);
}

/* Lists what a start serves, by its epoch; *served is the caller's to free.  False where memory is
 * short. */
static bool list_served(struct srv_salvage_served **served, size_t *count, struct parts *parts)
{
    struct srv_session **all;
    if (!srv_sessions_all(&all, count, parts->sessions))
        return false;
    *served = malloc((*count + 1) * sizeof **served);
    for (size_t i = 0; i < *count; i++) {
        if (*served != NULL)
            (*served)[i] = (struct srv_salvage_served){all[i]->epoch, all[i]->next_record};
        srv_session_put(all[i]);
    }
    free(all);
    if (*served != NULL)
        qsort(*served, *count, sizeof **served, by_epoch);
    return *served != NULL;
}

/* Makes the start that a daemon would make, and lists what it serves. */
static bool start(struct srv_salvage_served **served, size_t *count, struct parts *parts,
                  char *message)
{
    struct srv_store *store = NULL;
    const struct srv_store_context context = store_context(parts);
    bool started = srv_store_open(&store, &context, message, SRV_MESSAGE_MAX) &&
                   srv_store_load(store, message, SRV_MESSAGE_MAX);
    if (started && !list_served(served, count, parts)) {
        snprintf(message, SRV_MESSAGE_MAX, "out of memory");
        started = false;
    }
    if (!srv_store_close(store) && started) {
        snprintf(message, SRV_MESSAGE_MAX, "the sessions could not be saved");
        started = false;
    }
    return started;
}

/* Saves what that start left out; the table gives its blocks back first. */
static bool salvage(struct srv_buffer *text, struct parts *parts,
                    struct srv_salvage_context *context, char *message)
{
    struct srv_salvage result;
    const char *path = parts->config.state_dir, *why;
    int lock_file;
    srv_sessions_close(parts->sessions);
    parts->sessions = NULL;
    bool opened = open_directory(&context->directory, &lock_file, &why, path);
    snprintf(message, SRV_MESSAGE_MAX, "%s", opened ? "out of memory" : why);
    opened = opened && srv_sessions_open(&parts->sessions, &parts->config.limits, "salvage");
    context->sessions = parts->sessions;
    bool saved = opened && srv_salvage(&result, text, context, message);
    close_directory(context->directory, lock_file);
    if (!saved)
        return false;
    srv_buffer_printf(text,
                      "%s: a start serves %zu sessions; %zu others were saved, %zu could not be\n",
                      path, context->num_served, result.saved, result.unsaved);
    if (result.saved > 0)
        srv_buffer_text(text, "PUT /sessions/{id}/state makes a session of such a file\n");
    return true;
}

static int run_salvage(struct parts *parts)
{
    char message[SRV_MESSAGE_MAX];
    struct srv_salvage_served *served = NULL;
    struct srv_salvage_context context = {.models = &parts->models,
                                          .max_sessions = parts->config.limits.max_sessions};
    struct srv_buffer text;
    srv_buffer_init(&text, TEXT_MAX);
    bool saved = open_parts(parts, message) && start(&served, &context.num_served, parts, message);
    context.served = served;
    saved = saved && salvage(&text, parts, &context, message);
    if (text.length > 0)
        fwrite(text.data, 1, text.length, stdout);
    if (!saved)
        fail(parts->config.state_dir, message);
    saved = saved && !text.failed && fflush(stdout) == 0;
    free(served);
    srv_buffer_fini(&text);
    close_parts(parts);
    return saved ? 0 : 1;
}

/* Reads the configuration, in which DIR replaces state_dir. */
static bool read_config(struct srv_config *config, int argc, char *const argv[], char *message)
{
    char flag[] = "--state-dir", **all = calloc((size_t)argc + 3, sizeof(char *));
    snprintf(message, SRV_MESSAGE_MAX, "out of memory");
    if (all == NULL)
        return false;
    memcpy(all, argv, (size_t)argc * sizeof(char *));
    all[argc] = flag;
    all[argc + 1] = argv[0];
    bool read = srv_config_read(config, argc + 2, all, environ, message, SRV_MESSAGE_MAX);
    free(all);
    if (read && config->durability == SRV_DURABLE_NONE)
        config->durability = SRV_DURABLE_JOURNAL;
    return read;
}

/* A start as another user would leave files that the daemon cannot open. */
static bool is_owner(const char *path, char *message)
{
    struct stat directory;
    bool found = stat(path, &directory) == 0;
    snprintf(message, SRV_MESSAGE_MAX, "%s",
             found ? "it belongs to another user: run this as that user" : strerror(errno));
    return found && directory.st_uid == geteuid();
}

static int read_and_salvage(int argc, char *const argv[])
{
    struct parts parts = {0};
    char message[SRV_MESSAGE_MAX];
    if (!is_owner(argv[0], message))
        return fail(argv[0], message);
    if (read_config(&parts.config, argc, argv, message))
        return run_salvage(&parts);
    fail("", message);
    srv_config_fini(&parts.config);
    return 2;
}

int srv_command_journal(int argc, char *const argv[])
{
    if (argc == 2 && strcmp(argv[0], "check") == 0)
        return run_check(argv[1]);
    if (argc >= 2 && strcmp(argv[0], "salvage") == 0)
        return read_and_salvage(argc - 1, argv + 1);
    fail("", usage);
    return 2;
}
