/* test_config_notes.c: what a configuration passes over, and says so. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "config/config.h"
#include "scratch.h"
#include "suites.h"

static struct srv_config config;
static char directory[SCRATCH_PATH];

static void make_directory(void) { scratch_make(directory); }
static void remove_directory(void)
{
    srv_config_fini(&config);
    scratch_remove(directory);
}

static void read_all(char *const environ_[])
{
    char message[SRV_MESSAGE_MAX], *argv[] = {"attnd", "--model-dir", directory, NULL};
    bool read = srv_config_read(&config, 3, argv, environ_, message);
    ck_assert_msg(read, "refused: %s", message);
}

static void expect_note(size_t index, const char *format)
{
    char expected[SRV_CONFIG_NOTE];
    snprintf(expected, sizeof expected, format, directory);
    ck_assert_str_eq(config.notes[index], expected);
}

static void make(const char *name, bool is_model)
{
    char path[SCRATCH_PATH + 16];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    if (is_model)
        scratch_write(path, "config.json", "{}", 2);
}

static void unmake(const char *name)
{
    char path[SCRATCH_PATH + 16];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    scratch_remove(path);
}

static char *nothing[] = {NULL};

CASE(config_notes, make_directory, remove_directory, 0)

TEST(config_notes_a_model_dir_without_a_checkpoint)
{
    scratch_write(directory, ".gitignore", "*", 1);
    read_all(nothing);
    expect_note(0, "model_dir %s: no checkpoint in it");
    expect_note(1, "");
    srv_config_fini(&config);
    make("llama", false);
    scratch_write(directory, "b.gguf", "GGUF", 4);
    read_all(nothing);
    expect_note(0, "model_dir %s: no checkpoint in it: passed over: b.gguf (a file), "
                   "llama (no config.json)");
    unmake("llama");
}

TEST(config_notes_an_empty_directory_beside_a_checkpoint)
{
    make("good", true);
    read_all(nothing);
    expect_note(0, "");
    srv_config_fini(&config);
    static const char *const made[] = {"a", "b", "c", "d", "e", "f"};
    for (size_t i = 0; i < COUNT(made); i++)
        make(made[i], false);
    read_all(nothing);
    ck_assert_uint_eq(config.num_models, 1);
    expect_note(0, "model_dir %s: passed over: a (no config.json), b (no config.json), "
                   "c (no config.json), d (no config.json) and 2 more");
    for (size_t i = 0; i < COUNT(made); i++)
        unmake(made[i]);
    unmake("good");
}

TEST(a_directory_with_a_gguf_file_is_a_model)
{
    char path[SCRATCH_PATH + 16];
    make("small", false);
    snprintf(path, sizeof path, "%s/small", directory);
    scratch_write(path, "m.gguf", "GGUF", 4);
    read_all(nothing);
    ck_assert_uint_eq(config.num_models, 1);
    ck_assert_str_eq(config.models[0].name, "small");
    expect_note(0, "");
    unmake("small");
}

TEST(config_notes_variables_of_compose)
{
    char *environ_[] = {"ATTND_PORT=81",   "ATTND_MODELS=./m", "ATTND_CPUS=2",
                        "ATTND_MEMORY=4g", "ATTND_REVISION=a", NULL};
    make("good", true);
    read_all(environ_);
    ck_assert_uint_eq(config.port, 8080);
    ck_assert_uint_eq(config.num_models, 1);
    expect_note(0, "the variable ATTND_PORT is for docker-compose.yml; attnd reads ATTN_PORT");
    expect_note(1, "the variable ATTND_MODELS is for docker-compose.yml; attnd reads ATTN_MODELS");
    expect_note(2, "");
    unmake("good");
}

/* A health check asks where the daemon of its container listens, though no flag tells it. */
TEST(health_check_takes_the_flags_of_the_first_process)
{
    static const struct {
        const char *line; /* words end with a newline here */
        size_t port;      /* 0: not attnd's */
    } cases[] = {{"attnd\n--port\n9090\n", 9090},
                 {"/usr/local/bin/attnd\n--port=9091\n--log\nerror\n", 9091},
                 {"/sbin/docker-init\n--\nattnd\n--port\n9092\n", 9092},
                 {"attnd\n", 8080},
                 {"/sbin/init\nsplash\n", 0},
                 {"", 0},
                 {"attnd\n--port\n90", 0}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        static struct srv_first_process first;
        char path[SCRATCH_PATH + 16], text[128], message[SRV_MESSAGE_MAX], *none[] = {NULL};
        size_t length = strlen(cases[i].line);
        for (size_t at = 0; at < length; at++)
            text[at] = cases[i].line[at] == '\n' ? '\0' : cases[i].line[at];
        scratch_write(directory, "cmdline", text, length);
        snprintf(path, sizeof path, "%s/cmdline", directory);
        ck_assert_int_eq(srv_first_process_read(&first, path), cases[i].port > 0);
        if (cases[i].port == 0)
            continue;
        srv_config_fini(&config);
        ck_assert_msg(srv_config_read(&config, first.count, first.words, none, message), "%s",
                      message);
        ck_assert_uint_eq(config.port, cases[i].port);
        ck_assert_int_eq(config.mode, SRV_RUN_HEALTH);
    }
}

SUITE(config_notes)
