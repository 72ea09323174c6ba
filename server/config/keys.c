/* keys.c: the file of keys, and looking one up.
 *
 * The file is read as strictly as the configuration: an unknown field is an error that names it,
 * since a misspelt `scopes` must not become a key for everything. */
#include "config/keys.h"

#include <nettle/base16.h>
#include <nettle/memops.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <string.h>

#include "config/options.h"

#define MAX_LIMIT ((json_int_t)1 << 50)
#define MAX_REQUESTS_PER_S 1000000
#define WANTED_LIMIT "must be a whole number from 1 to 2^50, of requests_per_s to 1000000"
#define WANTED_KEYS "must be a list of 1 to 64 keys"

_Static_assert(SRV_KEY_DIGEST == SHA256_DIGEST_SIZE, "a digest is SHA-256");
_Static_assert(SRV_MAX_KEYS == 64, "WANTED_KEYS says how many");

static const struct {
    const char *text;
    enum srv_scope scope;
} scope_names[] = {
    {"infer", SRV_SCOPE_INFER}, {"admin", SRV_SCOPE_ADMIN}, {"metrics", SRV_SCOPE_METRICS}};

void srv_key_digest(unsigned char out[SRV_KEY_DIGEST], const char *key, size_t length)
{
    struct sha256_ctx context;
    sha256_init(&context);
    sha256_update(&context, length, (const uint8_t *)key);
    sha256_digest(&context, SRV_KEY_DIGEST, out);
    explicit_bzero(&context, sizeof context); /* it holds the key's last block */
}

void srv_key_digest_print(char out[SRV_KEY_DIGITS + 1], const char *key, size_t length)
{
    unsigned char digest[SRV_KEY_DIGEST];
    srv_key_digest(digest, key, length);
    base16_encode_update(out, sizeof digest, digest);
    out[SRV_KEY_DIGITS] = '\0';
}

/* ---- Looking up ------------------------------------------------------------------------------ */

/* Every digest is compared, in constant time, wherever the match is.  No two are equal, so `found`
 * gets one index plus 1. */
const struct srv_key *srv_keys_find(const struct srv_keys *keys,
                                    const unsigned char digest[SRV_KEY_DIGEST])
{
    size_t found = 0;
    for (size_t i = 0; i < keys->count; i++) {
        size_t equal = (size_t)memeql_sec(digest, keys->items[i].digest, SRV_KEY_DIGEST);
        found |= (0 - equal) & (i + 1);
    }
    return found > 0 ? &keys->items[found - 1] : NULL;
}

bool srv_keyring_find(struct srv_key *out, unsigned *index, struct srv_keyring *ring,
                      const char *key, size_t length)
{
    unsigned char digest[SRV_KEY_DIGEST];
    srv_key_digest(digest, key, length);
    pthread_mutex_lock(&ring->lock);
    const struct srv_key *found = srv_keys_find(&ring->keys, digest);
    if (found != NULL) {
        *out = *found;
        *index = (unsigned)(found - ring->keys.items);
    }
    pthread_mutex_unlock(&ring->lock);
    return found != NULL;
}

const char *srv_scopes_text(unsigned scopes)
{
    static const char *const texts[] = {
        "none",    "infer",         "admin",         "infer admin",
        "metrics", "infer metrics", "admin metrics", "infer admin metrics"};
    return texts[scopes & (SRV_SCOPE_INFER | SRV_SCOPE_ADMIN | SRV_SCOPE_METRICS)];
}

bool srv_keyring_metrics_keys(struct srv_keyring *ring)
{
    pthread_mutex_lock(&ring->lock);
    bool asked = ring->keys.metrics_keys;
    pthread_mutex_unlock(&ring->lock);
    return asked;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* The readers' context of a key's members, besides the key. */
struct reading {
    struct srv_keys *keys; /* those before it */
    bool has_digest;
};

static bool read_id(struct srv_object *object, json_t *value)
{
    const char *id = json_string_value(value);
    if (id == NULL || !srv_id_valid(id))
        return false;
    memcpy(object->to, id, strlen(id) + 1);
    return true;
}

static bool read_name(struct srv_object *object, json_t *value)
{
    const struct reading *reading = object->context;
    if (!read_id(object, value))
        return false;
    for (size_t i = 0; i < reading->keys->count; i++) {
        if (strcmp(reading->keys->items[i].name, object->to) == 0)
            return srv_object_refuse(object, "names an earlier key too");
    }
    return true;
}

/* Notes that the entry has a key; false, refused, where it already had one. */
static bool note_digest(struct srv_object *object)
{
    struct reading *reading = object->context;
    if (reading->has_digest)
        return srv_object_refuse(object, "a key has either key or sha256");
    return reading->has_digest = true;
}

/* A key consists of characters that a header field carries without quotes (RFC 6750, token68). */
static bool read_key(struct srv_object *object, json_t *value)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=";
    const char *text = json_string_value(value);
    size_t length = json_string_length(value);
    if (!note_digest(object) || text == NULL || length < SRV_KEY_MIN || length > SRV_KEY_MAX ||
        strspn(text, letters) != length)
        return false;
    srv_key_digest(object->to, text, length);
    explicit_bzero((char *)(uintptr_t)text, length); /* the tree is not read again */
    return true;
}

static bool read_sha256(struct srv_object *object, json_t *value)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    const char *text = json_string_value(value);
    size_t length = json_string_length(value), size;
    struct base16_decode_ctx context;
    if (!note_digest(object) || length != SRV_KEY_DIGITS || strspn(text, digits) != length)
        return false;
    base16_decode_init(&context);
    return base16_decode_update(&context, &size, object->to, length, text) == 1;
}

static bool read_scopes(struct srv_object *object, json_t *value)
{
    unsigned *scopes = object->to;
    size_t i;
    json_t *item;
    json_array_foreach(value, i, item) {
        const char *text = json_is_string(item) ? json_string_value(item) : "";
        unsigned scope = 0;
        for (size_t k = 0; k < sizeof scope_names / sizeof scope_names[0]; k++)
            if (strcmp(scope_names[k].text, text) == 0)
                scope = scope_names[k].scope;
        if (scope == 0)
            return false;
        if ((*scopes & scope) != 0)
            return srv_object_refuse(object, "names a scope twice");
        *scopes |= scope;
    }
    return json_array_size(value) > 0;
}

static bool read_limit(struct srv_object *object, json_t *value)
{
    size_t *limits = object->to; /* [SRV_QUOTAS] */
    json_int_t number = json_integer_value(value);
    for (enum srv_quota quota = 0; quota < SRV_QUOTAS; quota++) {
        if (strcmp(srv_quota_name(quota), object->member) != 0)
            continue;
        limits[quota] = (size_t)number;
        return json_is_integer(value) && number >= 1 &&
               number <= (quota == SRV_QUOTA_REQUESTS ? MAX_REQUESTS_PER_S : MAX_LIMIT);
    }
    return srv_object_refuse(object, "unknown field");
}

#define AT(member) offsetof(struct srv_key, member)

static bool read_entry(struct srv_object *object, json_t *value)
{
    static const struct srv_member members[] = {
        {"name", read_name, AT(name), "must be " SRV_ID_RULE},
        {"key", read_key, AT(digest), "must be 32 to 256 letters, digits or -._~+/="},
        {"sha256", read_sha256, AT(digest), "must be the 64 hexadecimal digits of a key's SHA-256"},
        {"scopes", read_scopes, AT(scopes),
         "must be a list of \"infer\", \"admin\" and \"metrics\", at least one"},
        {"group", read_id, AT(group), "must be " SRV_ID_RULE},
        {NULL, read_limit, AT(limits), WANTED_LIMIT}};
    const struct reading *reading = object->context;
    const struct srv_keys *keys = reading->keys;
    const struct srv_key *key = object->out;
    if (!srv_object_read(object, members, value))
        return false;
    const char *missing = key->name[0] == '\0'   ? "name: is missing"
                          : key->scopes == 0     ? "scopes: is missing"
                          : !reading->has_digest ? "key: is missing, and so is sha256"
                                                 : NULL;
    if (missing != NULL)
        return srv_refuse(object->message, "%s.%s", object->path, missing);
    for (size_t i = 0; i < keys->count; i++)
        if (memeql_sec(keys->items[i].digest, key->digest, SRV_KEY_DIGEST))
            return srv_refuse(object->message, "%s: is the same key as %s", object->path,
                              keys->items[i].name);
    return true;
}

static bool read_list(struct srv_object *object, json_t *list)
{
    struct srv_keys *keys = object->out;
    size_t i;
    json_t *value;
    if (json_array_size(list) == 0 || json_array_size(list) > SRV_MAX_KEYS)
        return false;
    json_array_foreach(list, i, value) {
        struct reading reading = {.keys = keys};
        struct srv_object entry = {
            .out = &keys->items[i], .context = &reading, .message = object->message};
        snprintf(entry.path, sizeof entry.path, "keys[%zu]", i);
        if (!read_entry(&entry, value))
            return false;
        keys->count++;
    }
    return true;
}

static bool read_defaults(struct srv_object *object, json_t *value)
{
    static const struct srv_member members[] = {{NULL, read_limit, 0, WANTED_LIMIT}};
    struct srv_object defaults = {
        .out = object->to, .path = "defaults", .message = object->message};
    return srv_object_read(&defaults, members, value);
}

static bool read_metrics_keys(struct srv_object *object, json_t *value)
{
    *(bool *)object->to = json_is_true(value);
    return json_is_boolean(value);
}

static bool refuse_unknown(struct srv_object *object, json_t *value)
{
    (void)value;
    return srv_refuse(object->message, "unknown field \"%.64s\"", object->member);
}

/* Gives a limit that the file leaves out, which is 0, its default. */
static void fill_limits(size_t limits[SRV_QUOTAS], const size_t *defaults)
{
    for (size_t i = 0; i < SRV_QUOTAS; i++)
        if (limits[i] == 0)
            limits[i] = defaults != NULL ? defaults[i] : SRV_NO_QUOTA;
}

bool srv_keys_read(struct srv_keys *out, const char *path, char message[SRV_MESSAGE_MAX])
{
    static const struct srv_member members[] = {
        {"keys", read_list, 0, WANTED_KEYS},
        {"defaults", read_defaults, offsetof(struct srv_keys, defaults), NULL},
        {"metrics_keys", read_metrics_keys, offsetof(struct srv_keys, metrics_keys),
         "must be true or false"},
        {NULL, refuse_unknown, 0, NULL}};
    struct srv_object file = {.out = out, .message = message};
    *out = (struct srv_keys){.count = 0};
    bool read = srv_object_read_file(&file, members, path, SRV_MAX_KEYS_BYTES, SRV_TEXT_SECRET);
    if (read && out->count == 0)
        read = srv_refuse(message, "%s: keys: " WANTED_KEYS, path);
    fill_limits(out->defaults, NULL);
    for (size_t i = 0; i < out->count; i++)
        fill_limits(out->items[i].limits, out->defaults);
    if (!read)
        explicit_bzero(out, sizeof *out);
    return read;
}

/* ---- The keys in use ------------------------------------------------------------------------- */

/* The limits of the account's key; the defaults of one without a key. */
static const size_t *limits_of(const struct srv_keys *keys, const struct srv_account *account)
{
    for (size_t i = 0; i < keys->count; i++)
        if (keys->items[i].account == account)
            return keys->items[i].limits;
    return keys->defaults;
}

size_t srv_keyring_read(struct srv_keyring *ring, const char *path, char message[SRV_MESSAGE_MAX])
{
    struct srv_accounts *accounts = &ring->accounts;
    struct srv_keys read;
    if (!srv_keys_read(&read, path, message))
        return 0;
    for (size_t i = 0; i < read.count; i++) {
        read.items[i].account = srv_accounts_get(accounts, read.items[i].name);
        if (read.items[i].account == NULL) {
            srv_refuse(message, "%s: more than %d names of keys since the start, or no memory",
                       path, SRV_MAX_ACCOUNTS);
            return 0;
        }
    }
    pthread_mutex_lock(&ring->lock);
    ring->keys = read;
    pthread_mutex_lock(&accounts->lock); /* each account changes its limits at once */
    memcpy(accounts->defaults, read.defaults, sizeof accounts->defaults);
    for (size_t i = 0; i < accounts->count; i++)
        srv_account_set_limits(accounts->items[i], limits_of(&read, accounts->items[i]));
    pthread_mutex_unlock(&accounts->lock);
    pthread_mutex_unlock(&ring->lock);
    return read.count;
}

void srv_keyring_fini(struct srv_keyring *ring) { srv_accounts_free(&ring->accounts); }
