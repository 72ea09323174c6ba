/* test_commands.c: what attnd does instead of serving, and configurations it refuses. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "suites.h"

/* Runs the daemon with these; standard output must hold `out`, standard error `err` (NULL: must be
 * empty). */
static void expect_run(const char *const arguments[], int status, const char *out, const char *err)
{
    char *got_out, *got_err;
    int got = process_run(&got_out, &got_err, arguments, NULL);
    ck_assert_msg(got == status, "%s: status %d, expected %d: %s", arguments[0], got, status,
                  got_err);
    ck_assert_msg(out != NULL ? strstr(got_out, out) != NULL : got_out[0] == '\0',
                  "%s: printed \"%s\"", arguments[0], got_out);
    ck_assert_msg(err != NULL ? strstr(got_err, err) != NULL : got_err[0] == '\0',
                  "%s: complained \"%s\"", arguments[0], got_err);
    free(got_out);
    free(got_err);
}

/* The same with `config` as the configuration file and one more argument. */
static void expect_config(const char *config, const char *argument, int status, const char *out,
                          const char *err)
{
    char directory[64], path[96];
    config_write(directory, path, config);
    const char *const arguments[] = {argument, "--config", path, NULL};
    expect_run(arguments, status, out, err);
    config_remove(directory);
}

START_TEST(test_version_and_help_print_and_succeed)
{
    static const char *const version[] = {"--version", NULL};
    static const char *const help[] = {"--help", NULL};
    expect_run(version, 0, "attnd 0.1.0\n", NULL);
    expect_run(version, 0, "libmicrohttpd ", NULL);
    expect_run(help, 0, "--max-body-bytes", NULL);
    expect_run(help, 0, "--health-check", NULL);
}
END_TEST

START_TEST(test_unknown_arguments_and_wrong_values_are_named)
{
    static const struct {
        const char *argument, *complaint;
    } cases[] = {{"--prot=80", "--prot"},
                 {"80", "\"80\""},
                 {"-p", "\"-p\""},
                 {"--port", "--port needs a value"},
                 {"--port=70000", "--port"},
                 {"--port=", "--port"},
                 {"--host=localhost", "--host"},
                 {"--threads=999", "--threads"},
                 {"--cpu-level=mmx", "--cpu-level"},
                 {"--help=1", "--help"},
                 {"--max-body-bytes=1TB", "--max-body-bytes"},
                 {"--config=/nonexistent.json", "/nonexistent.json"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const arguments[] = {cases[i].argument, NULL};
        expect_run(arguments, 2, NULL, cases[i].complaint);
    }
}
END_TEST

START_TEST(test_unknown_variable_is_named)
{
    static const char *const check[] = {"--check", NULL};
    static const char *const variables[] = {"ATTN_PROT=80", NULL};
    char *out, *err;
    ck_assert_int_eq(process_run(&out, &err, check, variables), 2);
    ck_assert_ptr_nonnull(strstr(err, "ATTN_PROT"));
    free(out);
    free(err);
}
END_TEST

START_TEST(test_check_prints_options_models_and_memory)
{
    expect_config(CONFIG_SMALL("\"max_queue\":77,"), "--check", 0,
                  "max_queue           = 77 (file)", NULL);
    expect_config(CONFIG_SMALL(""), "--check", 0, "tiny: random, 2 of 2 layers", NULL);
    expect_config(CONFIG_SMALL(""), "--check", 0, "memory at most", NULL);
}
END_TEST

START_TEST(test_wrong_configuration_files_are_refused_by_key)
{
    static const struct {
        const char *config, *complaint;
    } cases[] = {
        {"", "config.json"},
        {"[]", "JSON object"},
        {"{\"port\":0", "config.json"},
        {"{\"prot\":0}", "\"prot\""},
        {"{\"port\":-1}", "port"},
        {"{\"port\":0,\"port\":1}", "port"},
        {"{\"port\":1.5}", "port"},
        {"{\"check\":true}", "check"},
        {"{\"models\":{}}", "models"},
        {"{\"models\":[{\"name\":\"a\"}]}", "models[0]"},
        {"{\"models\":[{\"path\":\"x\"}]}", "models[0]"},
        {"{\"models\":[{\"name\":\"a\",\"path\":\"x\",\"random\":{}}]}", "models[0]"},
        {"{\"models\":[{\"name\":\"../a\",\"path\":\"x\"}]}", "models[0].name"},
        {"{\"models\":[{\"name\":\"a\",\"path\":\"x\",\"colour\":1}]}", "colour"},
        {"{\"models\":[{\"name\":\"a\",\"path\":\"x\",\"layers\":[1,0]}]}", "models[0].layers"},
        {"{\"models\":[{\"name\":\"a\",\"path\":\"x\",\"dtype\":\"int8\"}]}", "models[0].dtype"},
        {"{\"models\":[{\"name\":\"a\",\"path\":\"x\"},{\"name\":\"a\",\"path\":\"x\"}]}",
         "models[1].name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_config(cases[i].config, "--check", 2, NULL, cases[i].complaint);
}
END_TEST

START_TEST(test_models_that_cannot_be_opened_fail_the_check_and_the_start)
{
    static const char *const modes[] = {"--check", "--port=0"};
    static const struct {
        const char *config, *complaint;
    } cases[] = {
        {"{\"models\":[{\"name\":\"a\",\"path\":\"/nonexistent\"}]}", "model a"},
        {"{\"models\":[{\"name\":\"a\",\"random\":{\"hidden_size\":10,"
         "\"num_attention_heads\":3}}]}",
         "model a"},
        {"{\"models\":[{\"name\":\"a\",\"random\":{\"hidden_size\":16,"
         "\"num_attention_heads\":4,\"sliding\":8}}]}",
         "sliding"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t mode = 0; mode < 2; mode++) {
            char directory[64], path[96], *out, *err;
            config_write(directory, path, cases[i].config);
            const char *const arguments[] = {modes[mode], "--config", path, NULL};
            ck_assert_int_eq(process_run(&out, &err, arguments, NULL), 1);
            ck_assert_msg(strstr(err, cases[i].complaint) != NULL, "%s", err);
            ck_assert_ptr_null(strstr(out, "ready"));
            config_remove(directory);
            free(out);
            free(err);
        }
}
END_TEST

START_TEST(test_a_taken_port_fails_the_start)
{
    struct daemon daemon;
    char port[32], *out, *err;
    daemon_start(&daemon, CONFIG_SMALL(""), NULL, NULL);
    snprintf(port, sizeof port, "--port=%u", daemon.port);
    const char *const arguments[] = {port, NULL};
    ck_assert_int_eq(process_run(&out, &err, arguments, NULL), 1);
    ck_assert_msg(strstr(err, "cannot listen on 127.0.0.1") != NULL, "%s", err);
    free(out);
    free(err);
    daemon_stop(&daemon);
}
END_TEST

START_TEST(test_health_check_succeeds_while_the_daemon_lives)
{
    struct daemon daemon;
    char port[32];
    daemon_start(&daemon, CONFIG_SMALL(""), NULL, NULL);
    snprintf(port, sizeof port, "--port=%u", daemon.port);
    const char *const arguments[] = {"--health-check", port, NULL};
    const char *const any[] = {"--health-check", port, "--host=0.0.0.0", NULL};
    expect_run(arguments, 0, NULL, NULL);
    expect_run(any, 0, NULL, NULL);
    daemon_stop(&daemon);
    expect_run(arguments, 1, NULL, "Connection refused");
}
END_TEST

Suite *suite_commands(void)
{
    Suite *suite = suite_create("commands");
    TCase *commands = tcase_create("commands");
    tcase_add_test(commands, test_version_and_help_print_and_succeed);
    tcase_add_test(commands, test_unknown_arguments_and_wrong_values_are_named);
    tcase_add_test(commands, test_unknown_variable_is_named);
    tcase_add_test(commands, test_check_prints_options_models_and_memory);
    tcase_add_test(commands, test_wrong_configuration_files_are_refused_by_key);
    tcase_add_test(commands, test_models_that_cannot_be_opened_fail_the_check_and_the_start);
    tcase_add_test(commands, test_a_taken_port_fails_the_start);
    tcase_add_test(commands, test_health_check_succeeds_while_the_daemon_lives);
    suite_add_tcase(suite, commands);
    return suite;
}
