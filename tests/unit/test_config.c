/* test_config.c: the configuration from flags, variables and a file. */
#include <check.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "config/config.h"
#include "config/options.h"
#include "scratch.h"
#include "suites.h"

#define MAX_WORDS 40

static struct srv_config config;
static char message[SRV_MESSAGE_MAX];
static char directory[SCRATCH_PATH];
static char file[SCRATCH_PATH + 16];

static void make_directory(void)
{
    scratch_make(directory);
    snprintf(file, sizeof file, "%s/attnd.json", directory);
}

static void remove_directory(void) { scratch_remove(directory); }

static void write_file(const char *text)
{
    scratch_write(directory, "attnd.json", text, strlen(text));
}

/* Splits `text` at spaces into a NULL-terminated list of words, which are in `copy`. */
static int split(char *words[MAX_WORDS], char copy[512], const char *text)
{
    int count = 0;
    snprintf(copy, 512, "%s", text);
    char *rest;
    for (char *word = strtok_r(copy, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        ck_assert_int_lt(count, MAX_WORDS - 1);
        words[count++] = word;
    }
    words[count] = NULL;
    return count;
}

/* Reads a configuration from `file_text` (NULL: no file), variables and flags. */
static bool read_all(const char *file_text, const char *variables, const char *flags)
{
    char *argv[MAX_WORDS], *environ_[MAX_WORDS], flag_copy[512], variable_copy[512];
    char line[512];
    snprintf(line, sizeof line, "attnd%s%s %s", file_text ? " --config " : "",
             file_text ? file : "", flags);
    if (file_text != NULL)
        write_file(file_text);
    int argc = split(argv, flag_copy, line);
    split(environ_, variable_copy, variables);
    message[0] = '\0';
    return srv_config_read(&config, argc, argv, environ_, message);
}

static void expect_accepted(const char *file_text, const char *variables, const char *flags)
{
    bool read = read_all(file_text, variables, flags);
    ck_assert_msg(read, "refused: %s", message);
}

/* The configuration must be refused with one line that contains `part`. */
static void expect_refused(const char *part, const char *file_text, const char *variables,
                           const char *flags)
{
    ck_assert_msg(!read_all(file_text, variables, flags), "accepted: %s %s %s",
                  file_text ? file_text : "", variables, flags);
    srv_config_fini(&config);
    ck_assert_msg(strstr(message, part) != NULL, "\"%s\" is not in: %s", part, message);
    ck_assert_ptr_null(strchr(message, '\n'));
}

CASE(config, make_directory, remove_directory, 0)

TEST(config_without_anything_has_the_documented_defaults)
{
    expect_accepted(NULL, "", "");
    ck_assert_str_eq(config.host, "127.0.0.1");
    ck_assert_uint_eq(config.port, 8080);
    ck_assert_uint_eq(config.mode, SRV_RUN_SERVE);
    ck_assert_uint_eq(config.limits.max_body_bytes, 128u << 20);
    ck_assert_uint_eq(config.limits.max_in_flight_bytes, 1u << 30);
    ck_assert_uint_eq(config.limits.session_ttl_s, 3600);
    ck_assert_uint_eq(config.num_models, 0);
    ck_assert_uint_ge(strlen(config.instance), 1);
    ck_assert_uint_le(strlen(config.instance), 32);
    ck_assert_int_ne(config.instance[0], '-');
    srv_config_fini(&config);
}

TEST(config_an_instance_is_named_by_what_is_usable_of_its_host)
{
    static const char *const names[][2] = {
        {"node-7.example.org", "node-7"},
        {"a_b c", "a-b-c"},
        {"--x-", "x-"},
        {"", "attnd"},
        {".local", "attnd"},
        {"___", "attnd"},
        {"\xc3\xa9t\xc3\xa9", "t--"},
        {"abcdefghijklmnopqrstuvwxyz012345", "abcdefghijklmnopqrstuvwxyz012345"},
        {"inference-of-the-large-model-7d9f8b6c5d-x2x4z", "the-large-model-7d9f8b6c5d-x2x4z"},
    };
    for (size_t i = 0; i < COUNT(names); i++) {
        char name[SRV_INSTANCE_MAX + 1];
        srv_instance_of(name, names[i][0]);
        ck_assert_str_eq(name, names[i][1]);
    }
}

TEST(config_every_default_is_within_its_own_bounds)
{
    for (size_t i = 0; i < srv_option_count; i++) {
        size_t value = 0;
        const struct srv_option *option = &srv_options[i];
        if (option->kind != SRV_OPTION_SIZE)
            continue;
        ck_assert_msg(srv_size_parse(&value, option->initial), "%s", option->name);
        ck_assert_msg(value >= option->min && value <= option->max, "%s", option->name);
    }
}

static const struct srv_bound *find_bound(const char *name)
{
    const struct srv_bound *found = NULL;
    for (size_t i = 0; i < srv_bound_count; i++)
        if (strcmp(srv_bounds[i].name, name) == 0)
            found = &srv_bounds[i];
    return found;
}

TEST(config_every_limit_that_is_an_option_is_in_the_table_of_bounds_once)
{
    const size_t first = offsetof(struct srv_config, limits);
    size_t options = 0, rows = 0;
    for (size_t i = 0; i < srv_option_count; i++) {
        const struct srv_option *option = &srv_options[i];
        if (option->offset < first || option->offset >= first + sizeof(struct srv_limits))
            continue;
        const struct srv_bound *bound = find_bound(option->name);
        ck_assert_msg(bound != NULL && bound->is_option, "%s", option->name);
        ck_assert_msg(bound->value == option->offset, "%s", option->name);
        options++;
    }
    for (size_t i = 0; i < srv_bound_count; i++) {
        ck_assert_ptr_eq(find_bound(srv_bounds[i].name), &srv_bounds[i]);
        ck_assert((srv_bounds[i].code == SRV_OK) == (srv_bounds[i].beyond != NULL));
        rows += srv_bounds[i].is_option && srv_bounds[i].value >= first &&
                srv_bounds[i].value < first + sizeof(struct srv_limits);
    }
    ck_assert_uint_eq(options, sizeof(struct srv_limits) / sizeof(size_t));
    ck_assert_uint_eq(rows, options);
}

TEST(config_flag_beats_variable_beats_file_beats_default)
{
    static const char text[] = "{\"max_queue\": 10, \"max_tokens\": 11, \"max_sequences\": 12}";
    expect_accepted(text, "ATTN_MAX_QUEUE=20 ATTN_MAX_TOKENS=21", "--max-queue 30");
    ck_assert_uint_eq(config.limits.max_queue, 30);
    ck_assert_uint_eq(config.limits.max_tokens, 21);
    ck_assert_uint_eq(config.limits.max_sequences, 12);
    ck_assert_uint_eq(config.limits.max_sessions, 16384);
    srv_config_fini(&config);
}

TEST(config_print_says_where_each_value_came_from)
{
    struct srv_buffer out;
    srv_buffer_init(&out, 1 << 20);
    expect_accepted("{\"max_tokens\": 11}", "ATTN_LOG=error", "--host=127.0.0.2");
    srv_config_print(&out, &config);
    srv_buffer_append(&out, "", 1);
    ck_assert(!out.failed);
    ck_assert_ptr_nonnull(strstr(out.data, "max_tokens          = 11 tokens (file)\n"));
    ck_assert_ptr_nonnull(strstr(out.data, "log                 = error (variable)\n"));
    ck_assert_ptr_nonnull(strstr(out.data, "host                = 127.0.0.2 (flag)\n"));
    ck_assert_ptr_nonnull(strstr(out.data, "port                = 8080 (default)\n"));
    srv_buffer_fini(&out);
    srv_config_fini(&config);
}

TEST(config_only_shares_of_memory_that_nobody_set_are_divided)
{
    struct srv_buffer out;
    expect_accepted("{\"max_body_bytes\": \"64MiB\"}", "ATTN_MAX_SESSIONS=16384",
                    "--max-connections 9");
    srv_config_divide_defaults(&config, 2);
    ck_assert_uint_eq(config.limits.cache_bytes, 512u << 20);
    srv_config_divide_defaults(&config, SRV_MAX_DIVISOR); /* of the default, not of that */
    ck_assert_uint_eq(config.limits.cache_bytes, 16u << 20);
    ck_assert_uint_eq(config.limits.max_in_flight_bytes, 16u << 20);
    ck_assert_uint_eq(config.limits.max_reply_bytes, 4u << 20);
    ck_assert_uint_eq(config.limits.max_state_bytes, 8u << 20);
    ck_assert_uint_eq(config.limits.max_body_bytes, 64u << 20);
    ck_assert_uint_eq(config.limits.max_sessions, 16384);
    ck_assert_uint_eq(config.limits.max_connections, 9);
    ck_assert_uint_eq(config.limits.max_queue, 4096);
    ck_assert_uint_eq(config.limits.max_tokens, 32768);
    srv_buffer_init(&out, 1 << 20);
    srv_config_print(&out, &config);
    srv_buffer_append(&out, "", 1);
    ck_assert_ptr_nonnull(strstr(out.data, "cache_bytes         = 16777216 bytes (memory)\n"));
    ck_assert_ptr_nonnull(strstr(out.data, "max_body_bytes      = 67108864 bytes (file)\n"));
    ck_assert_ptr_nonnull(strstr(out.data, "max_queue           = 4096 (default)\n"));
    srv_buffer_fini(&out);
    srv_config_fini(&config);
}

TEST(config_beyond_loopback_needs_keys_or_a_word)
{
    static const char *const near[] = {"127.0.0.1", "127.255.255.254", "::1"};
    static const char *const far[] = {"0.0.0.0",   "::",        "10.0.0.1",
                                      "128.0.0.1", "126.1.1.1", "::2",
                                      "fe80::1",   "192.0.2.1", "::ffff:127.0.0.1"};
    char flags[128];
    for (size_t i = 0; i < COUNT(near); i++) {
        ck_assert(srv_config_is_loopback(near[i]));
        snprintf(flags, sizeof flags, "--host=%s", near[i]);
        expect_accepted(NULL, "", flags);
        srv_config_fini(&config);
    }
    for (size_t i = 0; i < COUNT(far); i++) {
        ck_assert(!srv_config_is_loopback(far[i]));
        snprintf(flags, sizeof flags, "--host=%s", far[i]);
        expect_refused("can be reached from elsewhere", NULL, "", flags);
        expect_refused("can be reached", NULL, "ATTN_ALLOW_UNAUTHENTICATED=false", flags);
        expect_accepted(NULL, "ATTN_ALLOW_UNAUTHENTICATED=true", flags);
        srv_config_fini(&config);
        expect_accepted("{\"allow_unauthenticated\":true}", "", flags);
        srv_config_fini(&config);
        expect_accepted("{\"api_keys\":\"keys.json\"}", "", flags);
        srv_config_fini(&config);
        snprintf(flags, sizeof flags, "--health-check --host=%s", far[i]);
        expect_accepted(NULL, "", flags);
        srv_config_fini(&config);
        snprintf(flags, sizeof flags, "--check --host=%s", far[i]);
        expect_refused("can be reached", NULL, "", flags);
    }
}

TEST(config_truth_is_for_what_is_true_or_false)
{
    expect_accepted("{\"allow_unauthenticated\": true}", "", "");
    ck_assert_uint_eq(config.allow_unauthenticated, 1);
    srv_config_fini(&config);
    expect_accepted("{\"allow_unauthenticated\": \"false\"}", "", "");
    ck_assert_uint_eq(config.allow_unauthenticated, 0);
    srv_config_fini(&config);
    expect_refused("one of false true", "{\"allow_unauthenticated\": \"yes\"}", "", "");
    expect_refused("must be a string", "{\"allow_unauthenticated\": 1}", "", "");
    expect_refused("log: \"true\" is not one of", "{\"log\": true}", "", "");
    expect_refused("must be a string", "{\"api_keys\": true}", "", "");
}

TEST(config_help_names_every_option)
{
    struct srv_buffer out;
    srv_buffer_init(&out, 1 << 20);
    srv_config_help(&out);
    srv_buffer_append(&out, "", 1);
    ck_assert(!out.failed);
    for (size_t i = 0; i < srv_option_count; i++) {
        char flag[SRV_OPTION_SPELL_MAX];
        srv_option_spell(flag, &srv_options[i], SRV_FROM_FLAG);
        ck_assert_msg(strstr(out.data, flag) != NULL, "%s", flag);
    }
    ck_assert_ptr_nonnull(strstr(out.data, "--config FILE "));
    ck_assert_ptr_nonnull(strstr(out.data, "--model-dir DIR "));
    srv_buffer_fini(&out);
}

TEST(config_the_file_may_be_named_by_a_variable)
{
    char variable[SCRATCH_PATH + 32];
    write_file("{\"port\": 81}");
    snprintf(variable, sizeof variable, "ATTN_CONFIG=%s", file);
    expect_accepted(NULL, variable, "");
    ck_assert_uint_eq(config.port, 81);
    ck_assert_str_eq(config.config_file, file);
    srv_config_fini(&config);
}

static const struct {
    const char *text;
    bool valid;
    size_t value;
} sizes[] = {
    {"0", true, 0},
    {"18446744073709551615", true, SIZE_MAX},
    {"3KiB", true, 3072},
    {"2MiB", true, 2097152},
    {"1GiB", true, 1073741824},
    {"5k", true, 5000},
    {"5M", true, 5000000},
    {"5G", true, 5000000000},
    {"5kB", true, 5000},
    {"5KB", true, 5000},
    {"5MB", true, 5000000},
    {"4GB", true, 4000000000},
    {"2TB", true, 2000000000000},
    {"2T", true, 2000000000000},
    {"2TiB", true, 2199023255552},
    {"16777216TiB", false, 0},
    {"4Gb", false, 0},
    {"4g", false, 0},
    {"18446744073709551616", false, 0},
    {"18014398509481984KiB", false, 0},
    {"17179869184GiB", false, 0},
    {"18446744074G", false, 0},
    {"", false, 0},
    {"KiB", false, 0},
    {"-1", false, 0},
    {"+1", false, 0},
    {" 1", false, 0},
    {"1 KiB", false, 0},
    {"1.5GiB", false, 0},
    {"1kib", false, 0},
    {"1e3", false, 0},
    {"0x10", false, 0},
};

TEST_EACH(config_size_reads_suffixes_and_refuses_what_overflows, (int)COUNT(sizes))
{
    size_t value = 7;
    ck_assert_msg(srv_size_parse(&value, sizes[_i].text) == sizes[_i].valid, "\"%s\"",
                  sizes[_i].text);
    if (sizes[_i].valid)
        ck_assert_uint_eq(value, sizes[_i].value);
}

static const struct {
    const char *part, *file, *variables, *flags;
} refusals[] = {
    {"\"--bogus\"", NULL, "", "--bogus 1"},
    {"\"extra\"", NULL, "", "extra"},
    {"--port needs a value", NULL, "", "--port"},
    {"--check takes no value", NULL, "", "--check=1"},
    {"--port: \"65536\" is not a whole number from 0 to 65535", NULL, "", "--port 65536"},
    {"--port: \"-1\"", NULL, "", "--port=-1"},
    {"--max-queue: \"0\"", NULL, "", "--max-queue=0"},
    {"bytes from 1024 to 70368744177664 (suffixes", NULL, "", "--cache-bytes=4gb"},
    {"--host: \"localhosts\"", NULL, "", "--host localhosts"},
    {"--host: \"\"", NULL, "", "--host="},
    {"--instance: \"a_b\"", NULL, "", "--instance a_b"},
    {"--instance: \"-a\"", NULL, "", "--instance=-a"},
    {"--instance: \"\"", NULL, "", "--instance="},
    {"one of off error info access", NULL, "", "--log verbose"},
    {"ATTN_MAX_QUEUES", NULL, "ATTN_MAX_QUEUES=1", ""},
    {"ATTN_CHECK", NULL, "ATTN_CHECK=1", ""},
    {"\"--prot\": did you mean --port?", NULL, "", "--prot 80"},
    {"\"--max_qeue\": did you mean --max-queue?", NULL, "", "--max_qeue=80"},
    {"\"ATTN_MAX_QUEUES\": did you mean ATTN_MAX_QUEUE?", NULL, "ATTN_MAX_QUEUES=", ""},
    {"\"ATTN_MODEL\": did you mean ATTN_MODELS?", NULL, "ATTN_MODEL=a=b", ""},
    {"\"ATTND_HOST\": did you mean ATTN_HOST?", NULL, "ATTND_HOST=::1", ""},
    {"\"ATTND_MAX_TOKEN\": did you mean ATTN_MAX_TOKENS?", NULL, "ATTND_MAX_TOKEN=5", ""},
    {"\"ATTND_PORTS\": did you mean ATTN_PORT?", NULL, "ATTND_PORTS=8080", ""},
    {"\"prot\": did you mean port?", "{\"prot\": 1}", "", ""},
    {"\"model\": did you mean models?", "{\"model\": []}", "", ""},
    {"models[0].laers: unknown key: did you mean layers?",
     "{\"models\": [{\"name\": \"a\", \"laers\": [0]}]}", "", ""},
    {"--model: \"a\" is not NAME=DIR", NULL, "", "--model a"},
    {"--model: \"a=\" is not NAME=DIR", NULL, "", "--model a="},
    {"--model: \"=b\" is not NAME=DIR", NULL, "", "--model==b"},
    {"--model: \"-a=b\" is not NAME=DIR", NULL, "", "--model=-a=b"},
    {"--model: two models are named a", NULL, "", "--model a=b --model a=c"},
    {"ATTN_MODELS: two models are named a", NULL, "ATTN_MODELS=a=b,a=c", ""},
    {"ATTN_MODELS: \"b\" is not NAME=DIR", NULL, "ATTN_MODELS=a=b,b,c=d", ""},
    {"model_dir: /nonexistent: No such file", NULL, "", "--model-dir /nonexistent"},
    {"one of f32 bf16 int8", NULL, "", "--dtype f16"},
    {"one of f32 bf16 f16 int8", NULL, "", "--kv-dtype fp8"},
    {"ATTN_PORT: \"x\"", NULL, "ATTN_PORT=x", "--port 80"},
    {"No such file", NULL, "", "--config /nonexistent/attnd.json"},
    {"Is a directory", NULL, "", "--config /tmp"},
    {"line 1", "{\"port\": 1,}", "", ""},
    {"duplicate", "{\"port\": 1, \"port\": 2}", "", ""},
    {"one JSON object", "[1]", "", ""},
    {"unknown key \"prot\"", "{\"prot\": 1}", "", ""},
    {"unknown key \"config\"", "{\"config\": \"x\"}", "", ""},
    {"unknown key \"check\"", "{\"check\": true}", "", ""},
    {"port: must be a string or a whole number", "{\"port\": 80.0}", "", ""},
    {"port: must be a string or a whole number", "{\"port\": true}", "", ""},
    {"port: \"-5\"", "{\"port\": -5}", "", "--port 80"},
    {"host: must be a string", "{\"host\": 1}", "", ""},
    {"log: must be a string", "{\"log\": null}", "", ""},
    {"max_body_bytes: \"99999999GiB\"", "{\"max_body_bytes\": \"99999999GiB\"}", "", ""},
    {"models: must be a list", "{\"models\": {}}", "", ""},
    {"models[0]: must be an object", "{\"models\": [1]}", "", ""},
    {"models[0].name: is missing", "{\"models\": [{\"path\": \"m\"}]}", "", ""},
    {"models[0].name: must be 1 to 64", "{\"models\": [{\"name\": \"a b\", \"path\": \"m\"}]}", "",
     ""},
    {"models[1].foo: unknown key",
     "{\"models\": [{\"name\": \"a\", \"path\": \"m\"}, {\"name\": \"b\", \"foo\": 1}]}", "", ""},
    {"models[1].name: names an earlier model",
     "{\"models\": [{\"name\": \"a\", \"path\": \"m\"}, {\"name\": \"a\", \"path\": \"m\"}]}", "",
     ""},
    {"models[0].path: exactly one", "{\"models\": [{\"name\": \"a\"}]}", "", ""},
    {"models[0].path: exactly one",
     "{\"models\": [{\"name\": \"a\", \"path\": \"m\", \"random\": {}}]}", "", ""},
    {"models[0].random: must be an object", "{\"models\": [{\"name\": \"a\", \"random\": 1}]}", "",
     ""},
    {"models[0].path: must be", "{\"models\": [{\"name\": \"a\", \"path\": \"\"}]}", "", ""},
    {"models[0].layers: must be a list",
     "{\"models\": [{\"name\": \"a\", \"path\": \"m\", \"layers\": [2, 1]}]}", "", ""},
    {"models[0].layers: must be a list",
     "{\"models\": [{\"name\": \"a\", \"path\": \"m\", \"layers\": [1, 1]}]}", "", ""},
    {"models[0].layers: must be a list",
     "{\"models\": [{\"name\": \"a\", \"path\": \"m\", \"layers\": [-1]}]}", "", ""},
    {"models[0].layers: must be a list",
     "{\"models\": [{\"name\": \"a\", \"path\": \"m\", \"layers\": []}]}", "", ""},
    {"models[0].layers: has no meaning",
     "{\"models\": [{\"name\": \"a\", \"random\": {}, \"layers\": [0]}]}", "", ""},
    {"models[0].dtype: must be", "{\"models\": [{\"name\": \"a\", \"dtype\": \"int4\"}]}", "", ""},
    {"models[0].dtype: must be", "{\"models\": [{\"name\": \"a\", \"dtype\": \"f16\"}]}", "", ""},
    {"models[0].kv_dtype: must be", "{\"models\": [{\"name\": \"a\", \"kv_dtype\": 1}]}", "", ""},
    {"models[0].stack: must be", "{\"models\": [{\"name\": \"a\", \"stack\": \"crossed\"}]}", "",
     ""},
    {"models[0].stack: must be", "{\"models\": [{\"name\": \"a\", \"stack\": 1}]}", "", ""},
    {"models[0].stack: has no meaning",
     "{\"models\": [{\"name\": \"a\", \"random\": {}, \"stack\": \"cross\"}]}", "", ""},
};

TEST_EACH(config_refuses_with_one_line_that_names_the_culprit, (int)COUNT(refusals))
{
    expect_refused(refusals[_i].part, refusals[_i].file, refusals[_i].variables,
                   refusals[_i].flags);
}

/* Makes the directory `name` in the scratch directory, with a config.json where it is a model's. */
static void make_model(const char *name, bool is_model)
{
    char path[SCRATCH_PATH + 64];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    if (is_model)
        scratch_write(path, "config.json", "{}", 2);
}

static void expect_model(size_t index, const char *name, const char *path)
{
    ck_assert_uint_lt(index, config.num_models);
    ck_assert_str_eq(config.models[index].name, name);
    ck_assert_str_eq(config.models[index].path, path);
}

TEST(config_models_of_all_sources_add_up_and_the_stronger_one_wins)
{
    static const char text[] =
        "{\"dtype\": \"bf16\", \"models\": [{\"name\": \"a\", \"path\": \"/f/a\"},"
        " {\"name\": \"b\", \"path\": \"/f/b\", \"dtype\": \"int8\"},"
        " {\"name\": \"c\", \"path\": \"/f/c\", \"kv_dtype\": \"f32\"}]}";
    expect_accepted(text, "ATTN_MODELS=,b=/v/b,d=/v=d, ATTN_KV_DTYPE=int8",
                    "--model=d=/f,l/d --model e=rel");
    ck_assert_uint_eq(config.num_models, 5);
    expect_model(0, "a", "/f/a");
    expect_model(1, "b", "/v/b");
    expect_model(2, "c", "/f/c");
    expect_model(3, "d", "/f,l/d");
    expect_model(4, "e", "rel");
    for (size_t i = 0; i < 5; i++) {
        ck_assert_int_eq(config.models[i].dtype, ATTN_BF16); /* that of b went with its entry */
        ck_assert_int_eq(config.models[i].kv_dtype, i == 2 ? ATTN_F32 : ATTN_INT8);
    }
    srv_config_fini(&config);
    expect_accepted(NULL, "", "--dtype=int8 --model a=b");
    ck_assert_int_eq(config.models[0].dtype, ATTN_INT8);
    ck_assert_int_eq(config.models[0].kv_dtype, ATTN_F32);
    srv_config_fini(&config);
}

static void remove_model(const char *name)
{
    char path[SCRATCH_PATH + 64];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    scratch_remove(path);
}

TEST(config_each_directory_of_model_dir_that_holds_a_checkpoint_is_a_model)
{
    char flags[SCRATCH_PATH + 64], path[SCRATCH_PATH + 8];
    snprintf(flags, sizeof flags, "--model-dir %s --model given=/x", directory);
    make_model("zeta", true);
    make_model("alpha", true);
    make_model("given", true);
    make_model("empty", false);
    make_model(".cache", true);
    expect_accepted(NULL, "", flags);
    ck_assert_uint_eq(config.num_models, 3);
    expect_model(0, "given", "/x");
    snprintf(path, sizeof path, "%s/alpha", directory);
    expect_model(1, "alpha", path);
    snprintf(path, sizeof path, "%s/zeta", directory);
    expect_model(2, "zeta", path);
    srv_config_fini(&config);
    char loop[SCRATCH_PATH + 16];
    snprintf(loop, sizeof loop, "%s/loop", directory);
    ck_assert_int_eq(symlink("loop", loop), 0);
    expect_refused("/loop: Too many levels of symbolic links", NULL, "", flags);
    ck_assert_int_eq(unlink(loop), 0);
    make_model("not,a,name", true);
    expect_refused("not,a,name: a model's name must be 1 to 64", NULL, "", flags);
    scratch_write(directory, "config.json", "{}", 2);
    expect_refused("is a checkpoint itself", NULL, "", flags);
    static const char *const made[] = {"zeta", "alpha", "given", "empty", ".cache", "not,a,name"};
    for (size_t i = 0; i < COUNT(made); i++)
        remove_model(made[i]);
}

TEST(config_no_more_models_than_there_is_room_for)
{
    char variables[SRV_MAX_MODELS * 8 + 32];
    char *environ_[] = {variables, NULL}, *argv[] = {"attnd", "--model", "last=x", NULL};
    size_t length = (size_t)snprintf(variables, sizeof variables, "ATTN_MODELS=");
    for (unsigned i = 0; i < SRV_MAX_MODELS; i++)
        length += (size_t)snprintf(variables + length, sizeof variables - length, "m%u=x,", i);
    ck_assert(srv_config_read(&config, 1, argv, environ_, message));
    ck_assert_uint_eq(config.num_models, SRV_MAX_MODELS);
    srv_config_fini(&config);
    ck_assert(!srv_config_read(&config, 3, argv, environ_, message));
    ck_assert_str_eq(message, "models: there are more than 256");
    srv_config_fini(&config);
}

TEST(config_what_is_empty_or_of_another_program_is_passed_over)
{
    expect_accepted("{\"port\": 81}",
                    "ATTN_PORT= ATTN_MODELS= ATTN_STATE_DIR= ATTND_SERVICE_HOST=10.0.0.1 "
                    "ATTND_RUN_ONCE=1 ATTN=1 "
                    "ATTND_PORT=tcp://10.0.0.1:8080 ATTND_CPUS=2 ATTND_HOST=",
                    "--host localhost");
    ck_assert_uint_eq(config.port, 81);
    ck_assert_uint_eq(config.num_models, 0);
    ck_assert_str_eq(config.host, "127.0.0.1");
    srv_config_fini(&config);
}

TEST(config_models_keep_order_layers_and_the_file_s_directory)
{
    char path[SCRATCH_PATH + 8];
    expect_accepted("{\"models\": [{\"name\": \"a\", \"path\": \"x/y\", \"layers\": [0, 3],"
                    " \"dtype\": \"f32\"}, {\"name\": \"b\", \"path\": \"/abs\","
                    " \"dtype\": \"int8\", \"kv_dtype\": \"f16\"},"
                    " {\"name\": \"c\", \"random\": {\"seed\": 7}},"
                    " {\"name\": \"d\", \"path\": \"x\", \"stack\": \"encoder\"}]}",
                    "", "");
    ck_assert_uint_eq(config.num_models, 4);
    ck_assert_ptr_null(config.models[0].stack);
    ck_assert_str_eq(config.models[3].stack, "encoder");
    snprintf(path, sizeof path, "%s/x/y", directory);
    ck_assert_str_eq(config.models[0].path, path);
    ck_assert_uint_eq(config.models[0].num_layers, 2);
    ck_assert_uint_eq(config.models[0].layers[1], 3);
    ck_assert_str_eq(config.models[1].path, "/abs");
    ck_assert_ptr_null(config.models[1].layers);
    ck_assert_int_eq(config.models[0].dtype, ATTN_F32);
    ck_assert_int_eq(config.models[0].kv_dtype, ATTN_F32);
    ck_assert_int_eq(config.models[1].dtype, ATTN_INT8);
    ck_assert_int_eq(config.models[1].kv_dtype, ATTN_F16);
    ck_assert_str_eq(config.models[2].random, "{\"seed\":7}");
    ck_assert_ptr_null(config.models[2].path);
    srv_config_fini(&config);
}

TEST(config_modes_and_help_is_given_whatever_else_is_wrong)
{
    static const struct {
        const char *variables, *flags;
        enum srv_run_mode mode;
    } cases[] = {{"", "--check", SRV_RUN_CHECK},
                 {"", "--check-short", SRV_RUN_CHECK_SHORT},
                 {"", "--health-check --port 99", SRV_RUN_HEALTH},
                 {"ATTN_BOGUS=1", "--port x --help", SRV_RUN_HELP},
                 {"", "-h", SRV_RUN_HELP},
                 {"ATTN_BOGUS=1", "--version", SRV_RUN_VERSION}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        expect_accepted(NULL, cases[i].variables, cases[i].flags);
        ck_assert_uint_eq(config.mode, cases[i].mode);
        srv_config_fini(&config);
    }
}

TEST(config_lists_are_texts_with_commas_or_lists_of_the_file)
{
    expect_accepted("{\"allowed_hosts\": [\"a\", \"B.c\"], \"allow_origins\": [\"http://d:1\"]}",
                    "", "");
    ck_assert_str_eq(config.allowed_hosts, "a,B.c");
    ck_assert_str_eq(config.allow_origins, "http://d:1");
    srv_config_fini(&config);
    expect_accepted(NULL, "ATTN_ALLOWED_HOSTS=a,b",
                    "--allow-origins https://a:80,tauri://localhost,http://[::1]:3000");
    ck_assert_str_eq(config.allowed_hosts, "a,b");
    srv_config_fini(&config);
    static const char *const hosts[] = {"*",   "a:80", "a,,b",  ",a",       "a,",
                                        "a b", "a.",   "[::1]", "http://a", "a/b"};
    for (size_t i = 0; i < COUNT(hosts); i++) {
        char text[64];
        snprintf(text, sizeof text, "{\"allowed_hosts\": \"%s\"}", hosts[i]);
        expect_refused("is not names without ports", text, "", "");
    }
    static const char *const origins[] = {"*",           "null",
                                          "a.example",   "http://",
                                          "http://*",    "http://A",
                                          "http://a/",   "://a",
                                          "http://a,*",  "https://a b",
                                          "http://a:80", "https://a:443",
                                          "https://:1",  "https://a:443,http://b"};
    for (size_t i = 0; i < COUNT(origins); i++) {
        char text[64];
        snprintf(text, sizeof text, "{\"allow_origins\": \"%s\"}", origins[i]);
        expect_refused("is not exact origins", text, "", "");
    }
    expect_refused("must be a list of strings", "{\"allow_origins\": [\"http://a\", 1]}", "", "");
    expect_refused("must be a list of strings", "{\"allow_origins\": [\"http://a,http://b\"]}", "",
                   "");
    expect_refused("allowed_hosts", "{\"allowed_hosts\": []}", "", "");
    expect_refused("host: must be a string", "{\"host\": [\"127.0.0.1\"]}", "", "");
}

TEST(config_adopted_directories_are_listed_and_their_flag_repeats)
{
    static const char text[] =
        "{\"durability\": \"journal\", \"state_dir\": \"s\", \"adopt\": [\"f\", \"g\"]}";
    char many[256] = "";
    expect_accepted(text, "", "");
    ck_assert_str_eq(config.adopt, "f,g");
    srv_config_fini(&config);
    expect_accepted(text, "ATTN_ADOPT=v,w", "--adopt x --adopt=y,z");
    ck_assert_str_eq(config.adopt, "x,y,z");
    srv_config_fini(&config);
    for (size_t i = 0; i <= SRV_MAX_ADOPTED; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), "--adopt d%zu ", i);
    expect_refused("--adopt: more than 16 are given", text, "", many);
    expect_refused("names of dir", text, "", "--adopt a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q");
    expect_refused("adopt: needs a durability", NULL, "", "--adopt a");
}

SUITE(config)
