/* command_check.c: attnd --check, and --help and --version: each prints a text and ends. */
#include "commands.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/endpoints.h"
#include "attn.h"
#include "attn_limits.h"
#include "base/buffer.h"
#include "config/keys.h"
#include "http/http.h"
#include "http/tls.h"
#include "memory.h"
#include "ops/sandbox.h"
#include "self_check.h"
#include "session/models.h"
#include "store/store.h"
#include "store/versions.h"

#define TEXT_MAX ((size_t)1 << 20) /* bytes that a command prints at most */

/* Prints the text and frees it; returns the exit status. */
static int print(struct srv_buffer *text)
{
    bool printed = !text->failed && fwrite(text->data, 1, text->length, stdout) == text->length &&
                   fflush(stdout) == 0;
    srv_buffer_fini(text);
    return printed ? 0 : 1;
}

int srv_command_help(void)
{
    struct srv_buffer text;
    srv_buffer_init(&text, TEXT_MAX);
    srv_config_help(&text);
    if (srv_has_page)
        srv_buffer_text(&text, "\nThe attention viewer is a page for a browser: http://HOST:PORT/, "
                               "by default http://127.0.0.1:8080/.\n");
    return print(&text);
}

int srv_command_version(void)
{
    struct attn_engine *engine;
    struct attn_engine_options options = {.threads = 1, .gemm = ATTN_GEMM_OPENBLAS};
    struct attn_error error = {0};
    bool opened = attn_engine_open(&engine, &options, &error) == ATTN_OK;
    if (!opened) {
        options.gemm = ATTN_GEMM_PACKED;
        opened = attn_engine_open(&engine, &options, &error) == ATTN_OK;
    }
    if (!opened) {
        fprintf(stderr, "attnd: %s\n", error.message);
        return 1;
    }
    struct attn_engine_info info;
    struct srv_buffer text;
    attn_engine_describe(&info, engine);
    srv_buffer_init(&text, TEXT_MAX);
    srv_buffer_printf(&text,
                      "attnd %s\nlibattn %s, %s kernels\nOpenBLAS core %s\nlibmicrohttpd %s\n",
                      ATTN_VERSION, ATTN_VERSION, info.level_name,
                      info.blas_core ? info.blas_core : "none", srv_http_library_version());
    attn_engine_close(engine);
    return print(&text);
}

/* ---- --check --------------------------------------------------------------------------------- */

static void print_model(struct srv_buffer *out, const struct srv_model *model)
{
    const struct attn_model_info *info = &model->info;
    const struct attn_layer_spec *spec = srv_model_first_layer(model->attn);
    char family[SRV_FAMILY_MAX];
    srv_model_print_family(family, info);
    srv_buffer_printf(
        out,
        "  %s: %s, %zu of %zu layers, parameters %zu, weights %zu bytes, cache %zu bytes/token",
        model->name, family, info->num_resident, info->num_layers, info->num_parameters,
        info->weight_bytes, info->cache_bytes_per_token);
    srv_buffer_printf(out, ", hidden_size %zu, heads %zu/%zu x %zu", spec->hidden_size,
                      spec->num_heads, spec->num_kv_heads, spec->head_dim);
    srv_buffer_printf(out, ", max_length %zu, cache %zu bytes/session\n", model->max_length,
                      attn_model_cache_bytes(model->attn, model->max_length));
}

/* The key's group and those of its limits that it has. */
static void print_key(struct srv_buffer *out, const struct srv_key *key)
{
    srv_buffer_printf(out, "  %s: %s", key->name, srv_scopes_text(key->scopes));
    if (key->group[0] != '\0')
        srv_buffer_printf(out, ", group %s", key->group);
    for (enum srv_quota quota = 0; quota < SRV_QUOTAS; quota++)
        if (key->limits[quota] != SRV_NO_QUOTA)
            srv_buffer_printf(out, ", %s %zu", srv_quota_name(quota), key->limits[quota]);
    srv_buffer_text(out, "\n");
}

/* False, with the message, where there is a file of keys and it is wrong. */
static bool print_keys(struct srv_buffer *out, const struct srv_config *config, char *message,
                       size_t size)
{
    struct srv_keys keys;
    if (config->api_keys == NULL)
        return true;
    if (!srv_keys_read(&keys, config->api_keys, message, size))
        return false;
    srv_buffer_printf(out, "api keys: %zu\n", keys.count);
    for (size_t i = 0; i < keys.count; i++)
        print_key(out, &keys.items[i]);
    return true;
}

/* False, with the message, where there is a certificate and it is wrong. */
static bool print_tls(struct srv_buffer *out, const struct srv_config *config, char *message,
                      size_t size)
{
    struct srv_tls tls;
    char date[SRV_TLS_DATE];
    if (!srv_tls_read(&tls, config->tls_cert, config->tls_key, message, size))
        return false;
    srv_tls_date(date, &tls);
    if (tls.certificate != NULL)
        srv_buffer_printf(out, "tls: the certificate expires %s\n", date);
    srv_tls_fini(&tls);
    return true;
}

/* False, with the message, where the option needs what the kernel does not have. */
static bool print_sandbox(struct srv_buffer *out, const struct srv_config *config, char *message,
                          size_t size)
{
    char words[SRV_SANDBOX_TEXT_MAX];
    bool filters = srv_sandbox_describe(words);
    srv_buffer_printf(out, "sandbox: this kernel has %s\n", words);
    if (!filters && config->sandbox)
        snprintf(message, size, "sandbox: this kernel filters no system calls");
    return filters || !config->sandbox;
}

/* False, with the message, where a start would refuse the directory by its identity or by
 * the versions of its files. */
static bool print_directory(struct srv_buffer *out, const struct srv_config *config,
                            const char *path, enum srv_naming naming, char *message, size_t size)
{
    struct srv_identity identity = {.generation = ""};
    snprintf(identity.instance, sizeof identity.instance, "%s", config->instance);
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return true;
    bool good = srv_versions_are_known(directory, path, message, size) &&
                srv_identity_check(&identity, directory, path, naming, message, size);
    close(directory);
    if (good)
        srv_buffer_printf(out, "%s: instance %s%s%s\n", path, identity.instance,
                          identity.generation[0] != '\0' ? ", generation "
                                                         : ", which a start names",
                          identity.generation);
    return good;
}

/* The same for the own directory and those that are adopted. */
static bool print_directories(struct srv_buffer *out, const struct srv_config *config,
                              char *message, size_t size)
{
    char path[SRV_LISTED_MAX + 1];
    const char *names = config->adopt;
    if (config->durability == SRV_DURABLE_NONE)
        return true;
    bool good =
        print_directory(out, config, config->state_dir,
                        config->names_instance ? SRV_NAME_GIVEN : SRV_NAME_DEFAULT, message, size);
    while (good && srv_config_take_name(path, &names))
        good = print_directory(out, config, path, SRV_NAME_HELD, message, size);
    return good;
}

/* Prints which weights a start would map.  False, with the message, where a start would refuse the
 * directory. */
static bool print_weights_cache(struct srv_buffer *out, const struct srv_config *config,
                                const struct srv_models *models, char *message, size_t size)
{
    for (size_t i = 0; i < models->count && config->weights_cache != NULL; i++) {
        const struct srv_model *model = &models->items[i];
        struct attn_error error = {0};
        const enum attn_status status =
            attn_model_find_cached(model->attn, config->weights_cache, model->name, &error);
        if (status == ATTN_UNSUPPORTED) {
            snprintf(message, size, "%s", error.message);
            return false;
        }
        srv_buffer_printf(out, "weights_cache: %s: %.1f MiB, %s\n", model->name,
                          (double)model->info.weight_bytes / (1 << 20),
                          status == ATTN_OK
                              ? "in a file: mapped, once for all daemons that use it"
                              : "in no file: the start that writes one packs them first");
    }
    return true;
}

static void print_models(struct srv_buffer *out, const struct srv_models *models)
{
    srv_buffer_printf(out, "models: %zu%s\n", models->count,
                      models->count == 0 ? ", so only attention without weights" : "");
    for (size_t i = 0; i < models->count; i++)
        print_model(out, &models->items[i]);
}

static void print_options(struct srv_buffer *out, const struct srv_config *config)
{
    srv_buffer_text(out, "options:\n");
    srv_config_print(out, config);
    srv_buffer_text(out, "bounds: what, how much, what happens beyond, of what\n");
    srv_bounds_print(out, config);
}

static void print_verdict(struct srv_buffer *out, const struct srv_config *config, size_t models)
{
    char url[SRV_URL_MAX];
    srv_print_url(url, config, (unsigned)config->port);
    srv_buffer_printf(out, "this configuration would start: %zu model%s on %s, sessions %s%s\n",
                      models, models == 1 ? "" : "s", url,
                      config->durability == SRV_DURABLE_NONE ? "in memory alone" : "kept in ",
                      config->durability == SRV_DURABLE_NONE ? "" : config->state_dir);
}

int srv_command_check(struct srv_config *config)
{
    struct srv_models models = {0};
    struct srv_memory memory;
    struct srv_buffer text;
    char message[SRV_MESSAGE_MAX];
    srv_buffer_init(&text, TEXT_MAX);
    bool good = srv_models_open(&models, config, message, sizeof message);
    bool fits = good && srv_memory_fit(&memory, config, &models, message, sizeof message);
    if (config->mode == SRV_RUN_CHECK)
        print_options(&text, config);
    for (size_t i = 0; i < SRV_CONFIG_NOTES && config->notes[i][0] != '\0'; i++)
        srv_buffer_printf(&text, "note: %s\n", config->notes[i]);
    good = good && print_keys(&text, config, message, sizeof message) &&
           print_tls(&text, config, message, sizeof message) &&
           print_directories(&text, config, message, sizeof message) &&
           print_weights_cache(&text, config, &models, message, sizeof message);
    if (good) {
        print_models(&text, &models);
        srv_memory_print(&text, &memory);
    }
    good = good && print_sandbox(&text, config, message, sizeof message) && fits &&
           srv_self_check_print(&text, config, message, sizeof message);
    if (good)
        print_verdict(&text, config, models.count);
    else
        fprintf(stderr, "attnd: this configuration would not start: %s\n", message);
    srv_models_close(&models);
    return print(&text) == 0 && good ? 0 : 1;
}

void srv_print_url(char out[SRV_URL_MAX], const struct srv_config *config, unsigned port)
{
    bool v6 = strchr(config->host, ':') != NULL;
    snprintf(out, SRV_URL_MAX, "%s://%s%.48s%s:%u", config->tls_cert != NULL ? "https" : "http",
             v6 ? "[" : "", config->host, v6 ? "]" : "", port);
}
