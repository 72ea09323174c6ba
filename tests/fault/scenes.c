/* scenes.c: a daemon for each injection, over a copy of one state directory.
 *
 * A start either serves, or ends with one line and a status that is not 0.  Whatever happened, a
 * daemon that is started afterwards without faults has every session, and the next decode's
 * bits. */
#include "scenes.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "calls.h"
#include "inject.h"
#include "steps.h"

#define ROWS 70
#define END_SECONDS 20
#define SAVE_MS 2000
#define CONFIG CONFIG_SMALL("\"threads\":2,\"log\":\"error\",")

enum act { START, SAVE, STOP };

static const struct scene {
    const char *name;
    enum act act;
    const char *durability; /* NULL: none, and no directory */
} scenes[] = {
    {"start", START, NULL},
    {"start with a journal", START, "journal"},
    {"start with a snapshot", START, "snapshot"},
    {"snapshot", SAVE, "snapshot"},
    {"snapshot with a journal", SAVE, "journal"},
    {"stop", STOP, NULL},
    {"stop with a journal", STOP, "journal"},
    {"stop with a snapshot", STOP, "snapshot"},
};

static struct {
    char template[96], state[96], config[96], config_directory[64];
    char *witness;
} paths;

/* ---- Directories ----------------------------------------------------------------------------- */

static void run_shell(const char *format, const char *a, const char *b)
{
    char command[320];
    snprintf(command, sizeof command, format, a, b);
    ck_assert_msg(system(command) == 0, "%s", command);
}

static void list_arguments(const char *out[9], const struct scene *scene, const char *directory)
{
    const char *const with[] = {"--config",     paths.config,      "--state-dir", directory,
                                "--durability", scene->durability, NULL};
    const char *const without[] = {"--config", paths.config, NULL};
    memcpy(out, scene->durability != NULL ? with : without,
           scene->durability != NULL ? sizeof with : sizeof without);
}

static void start(struct daemon *daemon, const struct scene *scene, const char *directory)
{
    const char *words[9];
    list_arguments(words, scene, directory);
    inject_daemon(daemon, CONFIG, words + 2); /* daemon_start adds --config itself */
}

/* Makes a state directory with a session, part of it in a snapshot and part of it in a
 * journal. */
static void make_template(const struct scene *scene)
{
    struct daemon daemon;
    struct client client;
    run_shell("rm -rf %s %s", paths.template, paths.state);
    start(&daemon, scene, paths.template);
    client_open(&client, &daemon);
    struct answer base = call_prefill(&client, "base", 40, ROWS, ",\"start\":true");
    expect_answer(&base, 200, NULL, "base");
    answer_free(&base);
    call_create(&client, "empty", "");
    if (scene->durability != NULL) {
        expect_posted(&client, "/snapshot", NULL, 202, NULL);
        for (unsigned waited = 0; call_metric(&client, "attnd_snapshots_total") < 1; waited++)
            pause_ms(5);
    }
    expect_decode(&client, "base", 9, ROWS);
    free(paths.witness);
    paths.witness = steps_bits(&client, "base");
    ck_assert_ptr_nonnull(paths.witness);
    client_close(&client);
    daemon_stop(&daemon);
}

/* ---- Checks ---------------------------------------------------------------------------------- */

static bool is_whole(struct client *client)
{
    char *bits = steps_bits(client, "base");
    bool same = bits != NULL && strcmp(bits, paths.witness) == 0 &&
                call_status(client, "empty") == 200 &&
                call_metric(client, "attnd_damaged_files_total") == 0 &&
                call_metric(client, "attnd_sessions_lost_total") == 0;
    free(bits);
    return same;
}

/* Starts the daemon once more without faults; its sessions must be whole. */
static void check_restart(const struct scene *scene, const struct fault *fault)
{
    struct daemon daemon;
    struct client client;
    if (scene->durability == NULL)
        return;
    start(&daemon, scene, paths.state);
    client_open(&client, &daemon);
    if (!is_whole(&client))
        inject_wrong(scene->name, fault, "the sessions are not whole");
    client_close(&client);
    process_end(&daemon.process); /* SIGKILL: nothing more is saved */
}

/* Whether the text has exactly one line of complaint, as its last, and no report of a sanitizer;
 * log lines do not count. */
static bool one_line(const char *text)
{
    const char *line = strstr(text, "attnd: ");
    return line != NULL && strstr(line + 1, "\nattnd: ") == NULL &&
           strchr(line, '\n') == line + strlen(line) - 1 && strstr(text, "Sanitizer") == NULL;
}

/* Checks the end of a process.  `refused`: it ended by itself before it was ready, with status 1 or
 * 2 and one line; otherwise it was asked to end, and has status 0 or 1. */
static void expect_end(struct process *process, const struct scene *scene,
                       const struct fault *fault, bool refused)
{
    int status = 0;
    bool ended = process_wait(&status, process, END_SECONDS);
    char *text = process_text(process->err);
    int code = ended && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    bool right = refused ? (code == 1 || code == 2) && one_line(text)
                         : (code == 0 || code == 1) && strstr(text, "Sanitizer") == NULL;
    if (!right)
        inject_wrong(scene->name, fault, "ended with status 0x%x: %.1500s", (unsigned)status, text);
    figures.ended += refused && right;
    free(text);
    process_end(process);
}

/* ---- Scenes ---------------------------------------------------------------------------------- */

/* Waits until the process is ready or ends; true where it is ready. */
static bool gets_ready(struct process *process)
{
    bool ready = false, ended = false;
    for (unsigned waited = 0; !ready && !ended && waited < END_SECONDS * 1000; waited += 2) {
        siginfo_t info = {0};
        char *text = process_text(process->out);
        ready = strstr(text, "attnd: ready on ") != NULL && strchr(text, '\n') != NULL;
        free(text);
        ended = waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                info.si_pid != 0;
        pause_ms(2);
    }
    return ready;
}

static void act_start(const struct scene *scene, const struct fault *fault)
{
    struct process process;
    const char *words[9];
    list_arguments(words, scene, paths.state);
    inject_arm(fault);
    inject_process(&process, words);
    bool ready = gets_ready(&process);
    inject_disarm();
    if (ready)
        kill(process.pid, SIGTERM);
    expect_end(&process, scene, fault, !ready);
}

/* Asks for a snapshot and waits for its end, good or bad; afterwards the daemon must be able to
 * make one. */
static void act_save(const struct scene *scene, const struct fault *fault)
{
    struct daemon daemon;
    struct client client;
    start(&daemon, scene, paths.state);
    client_open(&client, &daemon);
    double before = call_metric(&client, "attnd_snapshots_total");
    inject_arm(fault);
    struct answer asked = {0};
    (void)client_try(&asked, &client, &(struct request){.method = "POST", .path = "/snapshot"});
    pause_ms(15);
    inject_disarm();
    answer_free(&asked);
    for (unsigned waited = 0; call_metric(&client, "attnd_snapshots_total") == before;
         waited += 10) {
        struct answer again = client_post(&client, "/snapshot", NULL);
        answer_free(&again);
        pause_ms(10);
        if (waited > SAVE_MS) {
            inject_wrong(scene->name, fault, "no snapshot is made any more");
            break;
        }
    }
    if (!is_whole(&client))
        inject_wrong(scene->name, fault, "the sessions have changed");
    client_close(&client);
    process_end(&daemon.process); /* SIGKILL */
}

static void act_stop(const struct scene *scene, const struct fault *fault)
{
    struct daemon daemon;
    struct client client;
    start(&daemon, scene, paths.state);
    client_open(&client, &daemon);
    client_close(&client);
    inject_arm(fault);
    daemon_terminate(&daemon);
    expect_end(&daemon.process, scene, fault, false);
    inject_disarm();
}

static void play(const struct scene *scene, const struct fault *fault)
{
    static void (*const acts[])(const struct scene *, const struct fault *) = {
        [START] = act_start, [SAVE] = act_save, [STOP] = act_stop};
    if (scene->durability != NULL) {
        run_shell("rm -rf %s", paths.state, "");
        run_shell("cp -r %s %s", paths.template, paths.state);
    }
    acts[scene->act](scene, fault);
    if (fault->at == 0)
        return;
    figures.injections += inject_fired();
    check_restart(scene, fault);
}

static void run_scene(const struct scene *scene, unsigned stride)
{
    uint64_t counts[FAULT_KINDS];
    struct fault fault = {0};
    make_template(scene);
    play(scene, &fault);
    inject_counts(counts, false);
    while (inject_next(&fault, counts, stride))
        play(scene, &fault);
}

void scenes_run(const char *directory, unsigned stride)
{
    snprintf(paths.template, sizeof paths.template, "%s/template", directory);
    snprintf(paths.state, sizeof paths.state, "%s/state", directory);
    config_write(paths.config_directory, paths.config, CONFIG);
    for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++)
        run_scene(&scenes[i], stride);
    config_remove(paths.config_directory);
    free(paths.witness);
}
