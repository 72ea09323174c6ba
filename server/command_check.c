/* command_check.c: attnd --check. */
#include "attn_limits.h"
#include "main.h"

#include <fcntl.h>
#include <unistd.h>

#include "http/tls.h"
#include "ops/sandbox.h"
#include "store/versions.h"

/* The text that is printed, its subject, and the reason why this would not start. */
struct check {
    struct srv_buffer text;
    const struct srv_config *config;
    struct srv_models models;
    char message[SRV_MESSAGE_MAX];
};

static void print_models(struct srv_buffer *out, const struct srv_models *models)
{
    srv_buffer_printf(out, "models: %zu%s\n", models->count,
                      models->count == 0 ? ", so only attention without weights" : "");
    for (size_t i = 0; i < models->count; i++) {
        const struct srv_model *model = &models->items[i];
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
}

/* Prints each key's group and those of its limits that it has.  False, with the message, where
 * there is a file of keys and it is wrong. */
static bool print_keys(struct check *check)
{
    struct srv_buffer *out = &check->text;
    struct srv_keys keys;
    if (check->config->api_keys == NULL)
        return true;
    if (!srv_keys_read(&keys, check->config->api_keys, check->message))
        return false;
    srv_buffer_printf(out, "api keys: %zu\n", keys.count);
    for (const struct srv_key *key = keys.items; key < keys.items + keys.count; key++) {
        srv_buffer_printf(out, "  %s: %s", key->name, srv_scopes_text(key->scopes));
        if (key->group[0] != '\0')
            srv_buffer_printf(out, ", group %s", key->group);
        for (enum srv_quota quota = 0; quota < SRV_QUOTAS; quota++)
            if (key->limits[quota] != SRV_NO_QUOTA)
                srv_buffer_printf(out, ", %s %zu", srv_quota_name(quota), key->limits[quota]);
        srv_buffer_text(out, "\n");
    }
    return true;
}

/* False, with the message, where there is a certificate and it is wrong. */
static bool print_tls(struct check *check)
{
    struct srv_tls tls;
    char date[SRV_TLS_DATE];
    if (!srv_tls_read(&tls, check->config->tls_cert, check->config->tls_key, check->message,
                      SRV_MESSAGE_MAX))
        return false;
    srv_tls_date(date, &tls);
    if (tls.certificate != NULL)
        srv_buffer_printf(&check->text, "tls: the certificate expires %s\n", date);
    srv_tls_fini(&tls);
    return true;
}

/* False, with the message, where the option needs what the kernel does not have. */
static bool print_sandbox(struct check *check)
{
    char words[SRV_SANDBOX_TEXT_MAX];
    bool filters = srv_sandbox_describe(words);
    srv_buffer_printf(&check->text, "sandbox: this kernel has %s\n", words);
    return filters || !check->config->sandbox ||
           srv_refuse(check->message, "sandbox: this kernel filters no system calls");
}

/* False, with the message, where a start would refuse the directory by its identity or by
 * the versions of its files. */
static bool print_directory(struct check *check, const char *path, enum srv_naming naming)
{
    struct srv_identity identity = {.generation = ""};
    snprintf(identity.instance, sizeof identity.instance, "%s", check->config->instance);
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return true;
    bool good =
        srv_versions_are_known(directory, path, check->message, SRV_MESSAGE_MAX) &&
        srv_identity_check(&identity, directory, path, naming, check->message, SRV_MESSAGE_MAX);
    close(directory);
    if (good)
        srv_buffer_printf(&check->text, "%s: instance %s%s%s\n", path, identity.instance,
                          identity.generation[0] != '\0' ? ", generation "
                                                         : ", which a start names",
                          identity.generation);
    return good;
}

/* The same for the own directory and those that are adopted. */
static bool print_directories(struct check *check)
{
    const struct srv_config *config = check->config;
    char path[SRV_LISTED_MAX + 1];
    const char *names = config->adopt;
    if (config->durability == SRV_DURABLE_NONE)
        return true;
    bool good = print_directory(check, config->state_dir,
                                config->names_instance ? SRV_NAME_GIVEN : SRV_NAME_DEFAULT);
    while (good && srv_config_take_name(path, &names))
        good = print_directory(check, path, SRV_NAME_HELD);
    return good;
}

/* Prints which weights a start would map.  False, with the message, where a start would refuse the
 * directory. */
static bool print_weights_cache(struct check *check)
{
    const char *cache = check->config->weights_cache;
    for (size_t i = 0; i < check->models.count && cache != NULL; i++) {
        const struct srv_model *model = &check->models.items[i];
        struct attn_error error = {0};
        const enum attn_status status =
            attn_model_find_cached(model->attn, cache, model->name, &error);
        if (status == ATTN_UNSUPPORTED)
            return srv_refuse(check->message, "%s", error.message);
        srv_buffer_printf(&check->text, "weights_cache: %s: %.1f MiB, %s\n", model->name,
                          (double)model->info.weight_bytes / (1 << 20),
                          status == ATTN_OK
                              ? "in a file: mapped, once for all daemons that use it"
                              : "in no file: the start that writes one packs them first");
    }
    return true;
}

static void print_verdict(struct srv_buffer *out, const struct srv_config *config, size_t models)
{
    char url[SRV_URL_MAX];
    const bool kept = config->durability != SRV_DURABLE_NONE;
    srv_config_print_url(url, config, (unsigned)config->port);
    srv_buffer_printf(out, "this configuration would start: %zu model%s on %s, sessions %s%s\n",
                      models, models == 1 ? "" : "s", url, kept ? "kept in " : "in memory alone",
                      kept ? config->state_dir : "");
}

int srv_command_check(struct srv_config *config)
{
    struct check check = {.config = config};
    struct srv_buffer *text = &check.text;
    struct srv_memory memory;
    srv_buffer_init(text, SRV_PRINTED_MAX);
    bool good = srv_models_open(&check.models, config, check.message, SRV_MESSAGE_MAX);
    bool fits = good && srv_memory_fit(&memory, config, &check.models, check.message);
    if (config->mode == SRV_RUN_CHECK) {
        srv_buffer_text(text, "options:\n");
        srv_config_print(text, config);
        srv_buffer_text(text, "bounds: what, how much, what happens beyond, of what\n");
        srv_bounds_print(text, config);
    }
    for (size_t i = 0; i < SRV_CONFIG_NOTES && config->notes[i][0] != '\0'; i++)
        srv_buffer_printf(text, "note: %s\n", config->notes[i]);
    good = good && print_keys(&check) && print_tls(&check) && print_directories(&check) &&
           print_weights_cache(&check);
    if (good) {
        print_models(text, &check.models);
        srv_memory_print(text, &memory);
    }
    good =
        good && print_sandbox(&check) && fits && srv_self_check_print(text, config, check.message);
    if (good)
        print_verdict(text, config, check.models.count);
    else
        fprintf(stderr, "attnd: this configuration would not start: %s\n", check.message);
    srv_models_close(&check.models);
    return srv_print_text(text) == 0 && good ? 0 : 1;
}
