/* command_journal.c: attnd journal check|salvage DIR.
 *
 * Both hold the directory's lock, so that no daemon changes the files meanwhile.  `check` needs no
 * configuration and changes nothing.  `salvage` begins with what a start does, so that damaged
 * files are set aside, and then saves what that start leaves out. */
#include "main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/endpoints.h"
#include "store/salvage.h"
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
    if (srv_store_check(&check, &text, directory, message)) {
        if (text.length > 0)
            fwrite(text.data, 1, text.length, stdout);
        printf("%s: %zu files, %zu damaged; %zu were set aside\n", path, check.files, check.damaged,
               check.set_aside);
        if (check.later == 0)
            printf("a start serves %zu sessions; %zu have expired, %zu are lost\n", check.served,
                   check.expired, check.lost);
        else
            printf("%zu are of another version: start the build that wrote them\n", check.later);
        if (check.later == 0 && (check.damaged > 0 || check.set_aside > 0))
            printf("attnd journal salvage %s --config FILE saves what can be saved of them\n",
                   path);
        status = check.damaged > 0 || check.lost > 0 || check.later > 0 || check.set_aside > 0 ||
                 text.failed || fflush(stdout) != 0;
    } else {
        fail(path, message);
    }
    srv_buffer_fini(&text);
    close_directory(directory, lock_file);
    return status;
}

/* ---- salvage --------------------------------------------------------------------------------- */

/* Opens the parts that reading sessions takes.  False with the message: also where the
 * configuration names no model. */
static bool open_parts(struct srv_app *app, char *message)
{
    struct srv_config *config = &app->config;
    srv_log_open(&app->log, (enum srv_log_level)config->log, STDERR_FILENO);
    srv_refuse(message, "out of memory");
    return srv_metrics_open(&app->metrics, &srv_routes) &&
           srv_models_open(&app->models, config, message, SRV_MESSAGE_MAX) &&
           srv_memory_fit(&app->memory, config, &app->models, message) &&
           attn_cache_pool_new(&app->pool, config->limits.cache_bytes) == ATTN_OK &&
           srv_models_load(&app->models, app->pool, message, SRV_MESSAGE_MAX) &&
           srv_sessions_open(&app->sessions, &config->limits, config->instance);
}

static int by_epoch(const void *a, const void *b)
{
    const struct srv_salvage_served *x = a, *y = b;
    return (x->epoch > y->epoch) - (x->epoch < y->epoch);
}

/* Lists what a start serves, by its epoch; *served is the caller's to free.  False where memory is
 * short. */
static bool list_served(struct srv_salvage_served **served, size_t *count,
                        struct srv_sessions *sessions)
{
    struct srv_session **all;
    if (!srv_sessions_all(&all, count, sessions))
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
static bool start(struct srv_salvage_served **served, size_t *count, struct srv_app *app,
                  char *message)
{
    struct srv_store *store = NULL;
    struct srv_store_context context = srv_app_store_context(app);
    context.naming = SRV_NAME_NONE;
    context.reads_at_once = true; /* no thread reads anything later */
    bool started = srv_store_open(&store, &context, message, SRV_MESSAGE_MAX) &&
                   srv_store_load(store, message, SRV_MESSAGE_MAX);
    if (started && !list_served(served, count, app->sessions))
        started = srv_refuse(message, "out of memory");
    if (!srv_store_close(store) && started)
        started = srv_refuse(message, "the sessions could not be saved");
    return started;
}

/* Saves what that start left out; the table gives its blocks back first. */
static bool salvage(struct srv_buffer *text, struct srv_app *app,
                    struct srv_salvage_context *context, char *message)
{
    struct srv_salvage result;
    const char *path = app->config.state_dir, *why;
    int lock_file;
    srv_sessions_close(app->sessions);
    app->sessions = NULL;
    bool opened = open_directory(&context->directory, &lock_file, &why, path);
    srv_refuse(message, "%s", opened ? "out of memory" : why);
    opened = opened && srv_sessions_open(&app->sessions, &app->config.limits, "salvage");
    context->sessions = app->sessions;
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

static int run_salvage(struct srv_app *app)
{
    char message[SRV_MESSAGE_MAX];
    struct srv_salvage_served *served = NULL;
    struct srv_salvage_context context = {.models = &app->models,
                                          .max_sessions = app->config.limits.max_sessions};
    struct srv_buffer text;
    srv_buffer_init(&text, TEXT_MAX);
    bool saved = open_parts(app, message) && start(&served, &context.num_served, app, message);
    context.served = served;
    saved = saved && salvage(&text, app, &context, message);
    if (text.length > 0)
        fwrite(text.data, 1, text.length, stdout);
    if (!saved)
        fail(app->config.state_dir, message);
    saved = saved && !text.failed && fflush(stdout) == 0;
    free(served);
    srv_buffer_fini(&text);
    srv_sessions_close(app->sessions);
    srv_models_close(&app->models);
    attn_cache_pool_free(app->pool);
    srv_metrics_close(app->metrics);
    srv_log_close(&app->log);
    srv_config_fini(&app->config);
    return saved ? 0 : 1;
}

/* Reads the configuration, in which DIR replaces state_dir. */
static bool read_config(struct srv_config *config, int argc, char *const argv[], char *message)
{
    char flag[] = "--state-dir", **all = calloc((size_t)argc + 3, sizeof(char *));
    if (all == NULL)
        return srv_refuse(message, "out of memory");
    memcpy(all, argv, (size_t)argc * sizeof(char *));
    all[argc] = flag;
    all[argc + 1] = argv[0];
    bool read = srv_config_read(config, argc + 2, all, environ, message);
    free(all);
    if (read && config->durability == SRV_DURABLE_NONE)
        config->durability = SRV_DURABLE_JOURNAL;
    return read;
}

static int read_and_salvage(int argc, char *const argv[])
{
    struct srv_app app = {.routes = &srv_routes};
    struct stat directory;
    char message[SRV_MESSAGE_MAX];
    if (stat(argv[0], &directory) != 0)
        return fail(argv[0], strerror(errno));
    if (directory.st_uid != geteuid()) /* it would leave files that the daemon cannot open */
        return fail(argv[0], "it belongs to another user: run this as that user");
    if (read_config(&app.config, argc, argv, message))
        return run_salvage(&app);
    fail("", message);
    srv_config_fini(&app.config);
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
