/* test_commands.c: the commands of attnd, and configurations that it refuses. */
#include <check.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "families/family.h"
#include "suites.h"
#include "text.h"

/* Runs attnd with these arguments; standard output must contain `out`, standard error `err` (NULL:
 * must be empty). */
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

/* Runs attnd with `config` as the configuration file and one more argument. */
static void expect_config(const char *config, const char *argument, int status, const char *out,
                          const char *err)
{
    char directory[64], path[96];
    config_write(directory, path, config);
    const char *const arguments[] = {argument, "--config", path, NULL};
    expect_run(arguments, status, out, err);
    config_remove(directory);
}

TEST(version_and_help_print_and_succeed)
{
    static const char *const version[] = {"--version", NULL};
    static const char *const help[] = {"--help", NULL};
    expect_run(version, 0, "attnd 0.1.0\n", NULL);
    expect_run(version, 0, "libmicrohttpd ", NULL);
    expect_run(help, 0, "--max-body-bytes", NULL);
    expect_run(help, 0, "--health-check", NULL);
    expect_run(help, 0, "http://127.0.0.1:8080/.\n", NULL);
    expect_run(help, 0, "attnd inspect PATH [--stack NAME] [--layers 0,3,5] [--dtype NAME]", NULL);
}

TEST(unknown_arguments_and_wrong_values_are_named)
{
    static const struct {
        const char *argument, *complaint;
    } cases[] = {{"--prot=80", "--prot"},
                 {"80", "\"80\""},
                 {"-p", "\"-p\""},
                 {"--port", "--port needs a value"},
                 {"--port=70000", "--port"},
                 {"--port=", "--port"},
                 {"--host=example.org", "--host"},
                 {"--threads=999", "--threads"},
                 {"--cpu-level=mmx", "--cpu-level"},
                 {"--help=1", "--help"},
                 {"--max-body-bytes=1TB", "--max-body-bytes"},
                 {"--config=/nonexistent.json", "/nonexistent.json"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *const arguments[] = {cases[i].argument, NULL};
        expect_run(arguments, 2, NULL, cases[i].complaint);
    }
}

TEST(unknown_variable_is_named)
{
    static const char *const check[] = {"--check", NULL};
    static const char *const variables[] = {"ATTN_PROT=80", NULL};
    char *out, *err;
    ck_assert_int_eq(process_run(&out, &err, check, variables), 2);
    ck_assert_ptr_nonnull(strstr(err, "ATTN_PROT"));
    free(out);
    free(err);
}

TEST(check_prints_options_models_and_memory)
{
    expect_config(CONFIG_SMALL("\"max_queue\":77,"), "--check", 0,
                  "max_queue           = 77 (file)", NULL);
    expect_config(CONFIG_SMALL(""), "--check", 0, "tiny: random, 2 of 2 layers", NULL);
    expect_config(CONFIG_SMALL(""), "--check", 0, "memory at most", NULL);
    expect_config(
        CONFIG_SMALL(""), "--check", 0,
        "\nthis configuration would start: 2 models on http://127.0.0.1:0, sessions in memory "
        "alone\n",
        NULL);
    expect_config(CONFIG_SMALL(""), "--check", 0,
                  "  the same bits alone and in a batch: steps of tiny\n", NULL);
}

TEST(a_state_dir_alone_means_a_journal)
{
    static const char by_choice[] = CONFIG_SMALL("\"durability\":\"none\",\"state_dir\":\"s\",");
    static const char alone[] = CONFIG_SMALL("\"state_dir\":\"/nonexistent/s\",");
    expect_config(by_choice, "--check", 0, "durability          = none (file)", NULL);
    expect_config(alone, "--check", 0, "durability          = journal (state_dir)", NULL);
    expect_config(alone, "--check-short", 0, "sessions kept in /nonexistent/s\n", NULL);
    expect_config(alone, "--port=0", 1, "",
                  "journal, since state_dir is given and no durability is");
}

TEST(check_names_the_stack)
{
    struct text config = {0};
    char whole[PATH_MAX];
    ck_assert_ptr_nonnull(realpath("tests/reference/t5/model", whole));
    text_add(&config, "{\"models\":[{\"name\":\"a\",\"path\":\"%s\",\"stack\":\"cross\"}]}", whole);
    expect_config(config.data, "--check", 0, "a: t5 cross, 2 of 2 layers", NULL);
    text_free(&config);
}

/* ---- inspect --------------------------------------------------------------------------------- */

#define GOLDEN "tests/golden/"
#define REFERENCE "tests/reference/"
#define OWN "tests/own/"
#define OWN_SMALL                                                                                \
    "{\"model_type\":\"attention\",\"hidden_size\":8,\"num_heads\":4,\"num_key_value_heads\":2," \
    "\"head_dim\":4,\"value_head_dim\":3,\"transposed\":true}"

TEST(inspect_prints_family_layers_and_costs)
{
    static const struct {
        const char *arguments[5], *part;
    } cases[] = {
        {{GOLDEN "llama_gqa/model"}, "llama: 2 layers, weights stored as F32\n  layers 0-1: "},
        {{GOLDEN "llama_gqa/model"}, "num_attention_heads 4, num_key_value_heads 2, head_dim 16"},
        {{GOLDEN "llama_gqa/model"},
         "\n  24576 parameters of attention\n"
         "  loading takes 98304 bytes as f32, 49152 as bf16, 26112 as int8, 26112 as w8a16\n"
         "  a cached token takes 512 bytes as f32, 256 as bf16, 256 as f16, 160 as int8\n"
         "  a session of 2048 tokens takes 1048576 bytes as f32, 524288 as bf16, 524288 as f16, "
         "327680 as int8\n"},
        {{GOLDEN "llama_gqa/model", "--dtype", "int8"}, "weights stored as F32, kept as int8\n"},
        {{GOLDEN "llama_gqa/model", "--dtype", "bf16"}, "  loading takes 49152 bytes as bf16\n"},
        {{GOLDEN "llama_gqa/model", "--dtype=int8"}, "  loading takes 26112 bytes as int8\n"},
        {{GOLDEN "llama_gqa/model", "--kv-dtype", "f16"}, "stored as F32, cached as f16\n"},
        {{GOLDEN "llama3_rope_sharded/model"}, "rope(type llama3, "},
        {{GOLDEN "gpt2_f16/model"}, "weights stored as F16"},
        {{REFERENCE "gemma2/model"}, "\n  layer 0: "},
        {{REFERENCE "gemma2/model"}, "softcap 2, is_causal, mask sliding_window, sliding_window 5"},
        {{REFERENCE "gpt_oss/model"}, "rope(type yarn, "},
        {{REFERENCE "gpt_oss/model"}, "sinks, biases(query, key, value, output)"},
        {{REFERENCE "qwen2_sliding/model"}, "\n  layer 0: "},
        {{REFERENCE "qwen2_sliding/model"}, "\n  layers 1-2: "},
        {{REFERENCE "qwen2_sliding/model", "--layers", "0,2"},
         "3 layers, weights stored as F32, 2 "
         "to be loaded\n  layer 0: "},
        {{REFERENCE "bloom/model"}, "position_bias(type alibi, scale 1)"},
        {{REFERENCE "t5/model"}, "t5 encoder: 2 layers"},
        {{REFERENCE "t5/model"}, "\nt5 decoder: 2 layers"},
        {{REFERENCE "t5/model"}, "\nt5 cross: 2 layers"},
        {{REFERENCE "t5/model", "--stack=cross", "--layers=1"},
         "t5 cross: 2 layers, weights stored "
         "as F32, 1 to be loaded\n  layer 1: "},
        {{REFERENCE "t5/model", "--stack", "cross"}, "a cached encoder row takes "},
        {{GOLDEN "clip/model"}, "clip text: 2 layers"},
        {{GOLDEN "clip/model"}, "\nclip vision: 2 layers"},
        {{GOLDEN "clip/model", "--stack=vision"}, "hidden_size 40, "},
        {{GOLDEN "qwen3_next/model"},
         "4 layers, weights stored as F32, 2 to be loaded, 2 are linear_attention, which is not "
         "computed\n  layers 1, 3: "},
        {{GOLDEN "lfm2/model"}, ", 2 to be loaded, 2 are conv, which is not computed\n"},
        {{GOLDEN "nemotron_h/model"}, ", 2 are mamba, mlp or moe, which is not computed\n"},
        {{GOLDEN "llama_gqa/model", "--kv-dtype=int8"}, "a cached token takes 160 bytes as int8\n"},
        {{GOLDEN "gemma3/model/config.json"}, " layers, of the configuration alone\n"},
        {{OWN "small.npz", "--config", OWN_SMALL}, "attention: 1 layers, weights stored as F32\n"},
        {{OWN "small_deflated.npz", "--config=" OWN_SMALL}, "stored as F64\n"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *arguments[7] = {"inspect"};
        memcpy(arguments + 1, cases[i].arguments, sizeof cases[i].arguments);
        expect_run(arguments, 0, cases[i].part, NULL);
    }
}

TEST(inspect_reads_every_model_of_the_tests)
{
    static const char *const directories[] = {GOLDEN, REFERENCE};
    size_t inspected = 0;
    for (size_t i = 0; i < 2; i++) {
        DIR *directory = opendir(directories[i]);
        const struct dirent *entry;
        ck_assert_ptr_nonnull(directory);
        while ((entry = readdir(directory)) != NULL) {
            char path[PATH_MAX];
            snprintf(path, sizeof path, "%s%s/model", directories[i], entry->d_name);
            if (access(path, R_OK) != 0)
                continue;
            const char *const arguments[] = {"inspect", path, NULL};
            expect_run(arguments, 0, "loading takes ", NULL);
            inspected++;
        }
        closedir(directory);
    }
    ck_assert_uint_ge(inspected, 48);
}

/* The standard output of a run with these arguments, which must succeed; the caller frees it. */
static char *printed(const char *const arguments[])
{
    char *out, *err;
    ck_assert_int_eq(process_run(&out, &err, arguments, NULL), 0);
    ck_assert_str_eq(err, "");
    free(err);
    return out;
}

TEST(inspect_prints_keys_and_tensors_of_every_family)
{
    static const char *const list[] = {"inspect", "--family", NULL};
    char *names = printed(list);
    const struct attn_family *family;
    size_t families = 0;
    for (; (family = attn_family_at(families)) != NULL; families++) {
        const char *const arguments[] = {"inspect", "--family", family->model_type, NULL};
        char line[96], quoted[160];
        char *section = printed(arguments);
        snprintf(line, sizeof line, "%s\n", family->model_type);
        ck_assert_ptr_nonnull(strstr(names, line));
        snprintf(quoted, sizeof quoted, "`\"model_type\": \"%s\"`", family->model_type);
        ck_assert_msg(strstr(section, quoted) != NULL, "%s: %s", family->model_type, section);
        for (const struct attn_family_tensor *t = family->tensors; t->name != NULL; t++) {
            const bool absent =
                t->role == ATTN_ROLE_BIAS && (t->projections & ~family->unbiased) == 0;
            snprintf(quoted, sizeof quoted, "| `%s` ", t->name);
            ck_assert_msg(absent || strstr(section, quoted) != NULL, "%s has no %s",
                          family->model_type, quoted);
        }
        free(section);
    }
    ck_assert_uint_ge(families, 98);
    free(names);
}

TEST(inspect_prints_a_family_by_each_of_its_names)
{
    static const struct {
        const char *arguments[3], *part;
    } cases[] = {
        {{"--family", "llama"}, "| `layers.*.self_attn.q_proj.weight` | weight of q | [out, in] |"},
        {{"--family=llama"}, "\n| `num_key_value_heads` "},
        {{"--family", "t5"}, "## t5, stack decoder\n"},
        {{"--family", "t5"}, "\n\n## t5, stack cross\n"},
        {{"--family", "mt5"}, "| `decoder.block.*.layer.0.SelfAttention.q.weight` "},
        {{"--family", "torch_mha"}, "`\"model_type\": \"torch_multihead_attention\"`"},
        {{"--family", "random"}, "\n| `seed` "},
        {{"--family"}, "\ngpt_neox\ngptj\n"},
        {{"--family="}, "\nt5\ntorch_multihead_attention\n"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *arguments[5] = {"inspect"};
        memcpy(arguments + 1, cases[i].arguments, sizeof cases[i].arguments);
        expect_run(arguments, 0, cases[i].part, NULL);
    }
}

TEST(inspect_complains_in_one_line)
{
    static const struct {
        const char *arguments[4], *complaint;
        int status;
    } cases[] = {
        {{NULL}, "inspect: usage: attnd inspect PATH", 2},
        {{"/nonexistent"}, "inspect: /nonexistent: ", 1},
        {{GOLDEN}, "config.json", 1},
        {{GOLDEN "bert/model", "--stack", "cross"}, "no stack 'cross'", 1},
        {{GOLDEN "siglip/model", "--stack", "encoder"}, "no stack 'encoder'", 1},
        {{REFERENCE "t5/model", "--stack", "middle"}, "'middle'", 1},
        {{GOLDEN "bert/model", "--layers", "1,0"}, "--layers", 2},
        {{GOLDEN "bert/model", "--layers", ""}, "--layers", 2},
        {{GOLDEN "bert/model", "--layers", "0,"}, "--layers", 2},
        {{GOLDEN "bert/model", "--layers", "2"}, "layers has 2", 1},
        {{GOLDEN "qwen3_next/model", "--layers", "0,1"},
         "layers has 0, which is linear_attention",
         1},
        {{GOLDEN "nemotron_h/model", "--layers", "2"}, "layers has 2, which is mlp", 1},
        {{GOLDEN "bert/model", "--layers"}, "--layers needs a value", 2},
        {{"--stack"}, "--stack needs a value", 2},
        {{"/nonexistent/config.json"}, "inspect: /nonexistent/config.json: ", 1},
        {{"tests/golden/llama_gqa/cases.json"}, "cases.json: ", 1},
        {{GOLDEN "bert/model", "--json=yes"}, "--json takes no value", 2},
        {{GOLDEN "bert/model", "--dtype", "int4"}, "f32, bf16, int8 or w8a16, not int4", 2},
        {{GOLDEN "bert/model", "--dtype", "f16"}, "dtype is f16, weights are kept as", 1},
        {{GOLDEN "bert/model", "--layer", "0"}, "unknown argument \"--layer\"", 2},
        {{GOLDEN "bert/model", "--stacks=a"}, "unknown argument \"--stacks=a\"", 2},
        {{GOLDEN "bert/model", GOLDEN "gpt2/model"}, "unknown argument \"" GOLDEN, 2},
        {{GOLDEN "bert/model", "--kv-dtype", "q4"}, "bf16, f16 or int8, not q4", 2},
        {{GOLDEN "bert/model", "--dtype="}, "--dtype", 2},
        {{"--family", "lama"}, "--family lists, not \"lama\"; did you mean llama?\n", 2},
        {{"--family=torch-mha"}, "; did you mean torch_mha?\n", 2},
        {{"--family", "perceptron"}, "--family lists, not \"perceptron\"\n", 2},
        {{"--family", "llama", GOLDEN "bert/model"}, "--family stands alone", 2},
        {{"--family=llama", "--stack=encoder"}, "--family stands alone", 2},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *arguments[6] = {"inspect"};
        char *out, *err;
        memcpy(arguments + 1, cases[i].arguments, sizeof cases[i].arguments);
        ck_assert_int_eq(process_run(&out, &err, arguments, NULL), cases[i].status);
        ck_assert_str_eq(out, "");
        ck_assert_msg(strstr(err, cases[i].complaint) != NULL, "complained \"%s\"", err);
        ck_assert_ptr_eq(strchr(err, '\n'), err + strlen(err) - 1);
        free(out);
        free(err);
    }
}

/* A configuration costs what its checkpoint costs; kinds of layers that alternate are printed once;
 * a directory without weights is told of. */
TEST(inspect_prints_a_configuration_alone)
{
    static const char *const whole[] = {"inspect", REFERENCE "gemma2/model", "--json", NULL};
    static const char *const alone[] = {"inspect", "--json", REFERENCE "gemma2/model/config.json",
                                        NULL};
    char *texts[2] = {printed(whole), printed(alone)}, *out, *err;
    json_t *models[2];
    for (size_t i = 0; i < 2; i++) {
        models[i] = json_loads(texts[i], 0, NULL);
        ck_assert_ptr_nonnull(models[i]);
        free(texts[i]);
    }
    json_t *of_whole = json_array_get(json_object_get(models[0], "models"), 0);
    json_t *of_alone = json_array_get(json_object_get(models[1], "models"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(of_whole, "weights_dtype")), "F32");
    ck_assert(json_is_null(json_object_get(of_alone, "weights_dtype")));
    json_object_del(of_whole, "weights_dtype");
    json_object_del(of_alone, "weights_dtype");
    ck_assert(json_equal(of_whole, of_alone));
    json_decref(models[0]);
    json_decref(models[1]);

    char directory[] = "/tmp/attnd-inspect-XXXXXX", path[64];
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/config.json", directory);
    FILE *config = fopen(path, "w");
    ck_assert_ptr_nonnull(config);
    fputs("{\"model_type\": \"cohere2\", \"hidden_size\": 8, \"num_attention_heads\": 2,"
          " \"num_hidden_layers\": 6, \"sliding_window\": 4, \"layer_types\": ["
          "\"sliding_attention\", \"full_attention\", \"sliding_attention\","
          " \"sliding_attention\", \"full_attention\", \"sliding_attention\"]}",
          config);
    fclose(config);
    const char *const without[] = {"inspect", directory, NULL};
    ck_assert_int_eq(process_run(&out, &err, without, NULL), 1);
    ck_assert_ptr_nonnull(strstr(out, "\n  layers 0, 2-3, 5: hidden_size 8"));
    ck_assert_ptr_nonnull(strstr(out, "\n  layers 1, 4: hidden_size 8"));
    ck_assert_ptr_nonnull(strstr(err, "model.safetensors"));
    ck_assert_ptr_nonnull(strstr(err, "; of config.json alone:\n"));
    free(out);
    free(err);
    unlink(path);
    rmdir(directory);
}

TEST(wrong_configuration_files_are_refused_by_key)
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
        {"{\"models\":[{\"name\":\"a\",\"path\":\"x\",\"dtype\":\"int4\"}]}", "models[0].dtype"},
        {"{\"models\":[{\"name\":\"a\",\"path\":\"x\",\"stack\":\"both\"}]}", "models[0].stack"},
        {"{\"models\":[{\"name\":\"a\",\"path\":\"x\"},{\"name\":\"a\",\"path\":\"x\"}]}",
         "models[1].name"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        expect_config(cases[i].config, "--check", 2, NULL, cases[i].complaint);
}

TEST(models_that_cannot_be_opened_fail_the_check_and_the_start)
{
    static const char *const modes[] = {"--check", "--port=0"};
    static const struct {
        const char *config, *complaint;
    } cases[] = {
        {"{\"models\":[{\"name\":\"a\",\"path\":\"/nonexistent\"}]}",
         "model a: path /nonexistent: no such directory"},
        {"{\"models\":[{\"name\":\"a\",\"random\":{\"hidden_size\":10,"
         "\"num_attention_heads\":3}}]}",
         "model a"},
        {"{\"models\":[{\"name\":\"a\",\"random\":{\"hidden_size\":16,"
         "\"num_attention_heads\":4,\"sliding\":8}}]}",
         "sliding"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
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

TEST(a_taken_port_fails_the_start)
{
    struct daemon daemon;
    char port[32], *out, *err;
    daemon_start(&daemon, CONFIG_SMALL(""), NULL, NULL);
    snprintf(port, sizeof port, "--port=%u", daemon.port);
    const char *const arguments[] = {port, NULL};
    ck_assert_int_eq(process_run(&out, &err, arguments, NULL), 1);
    ck_assert_msg(strstr(err, "cannot listen on 127.0.0.1") != NULL, "%s", err);
    ck_assert_msg(strstr(err, "end that one or give another --port") != NULL, "%s", err);
    free(out);
    free(err);
    daemon_stop(&daemon);
}

TEST(health_check_succeeds_while_the_daemon_lives)
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

/* The status of a thread must contain the line, as "Seccomp:\t2\n". */
static void expect_status(const struct daemon *daemon, pid_t thread, const char *line)
{
    char *text = daemon_status(daemon, thread);
    ck_assert_msg(strstr(text, line) != NULL, "no %s in %s", line, text);
    free(text);
}

CASE(sandboxed, NULL, NULL, 0)

TEST(sandbox_holds_every_thread_of_a_serving_daemon)
{
    struct daemon daemon;
    pid_t threads[DAEMON_MAX_THREADS];
    const char *const arguments[] = {"--sandbox", "on", "--threads", "3", NULL};
    const char *const variables[] = {PROCESS_NO_LEAKS, NULL};
    daemon_start(&daemon, CONFIG_SMALL(""), arguments, variables);
    expect_status(&daemon, daemon.process.pid, "\nSeccomp:\t2\n");
    size_t count = daemon_threads(threads, &daemon);
    ck_assert_uint_ge(count, 4); /* event, scheduler, workers, I/O workers */
    for (size_t i = 0; i < count; i++) {
        expect_status(&daemon, threads[i], "\nNoNewPrivs:\t1\n");
        expect_status(&daemon, threads[i], "\nSeccomp:\t2\n");
    }
    daemon_stop(&daemon);
}

SUITE(commands)
