/* keys.c: the file of keys, and looking one up.
 *
 * The file is read as strictly as the configuration: an unknown field is an error that names it,
 * since a misspelt `scopes` must not become a key for everything.  jansson's message of a syntax
 * error quotes the text around it, possibly a key, so only line and column are passed on. */
#include "config/keys.h"
#include "attn_json.h"

#include <jansson.h>
#include <nettle/base16.h>
#include <nettle/memops.h>
#include <nettle/sha2.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "base/text_file.h"

#define MAX_LIMIT ((json_int_t)1 << 50)
#define MAX_REQUESTS_PER_S 1000000
#define NO_LIMIT "must be a whole number from 1 to 2^50, of requests_per_s to 1000000"

_Static_assert(SRV_KEY_DIGEST == SHA256_DIGEST_SIZE, "a digest is SHA-256");

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

bool srv_keyring_find(struct srv_key *out, unsigned *place, struct srv_keyring *ring,
                      const char *key, size_t length)
{
    unsigned char digest[SRV_KEY_DIGEST];
    srv_key_digest(digest, key, length);
    pthread_mutex_lock(&ring->lock);
    const struct srv_key *found = srv_keys_find(&ring->keys, digest);
    if (found != NULL) {
        *out = *found;
        *place = (unsigned)(found - ring->keys.items);
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

struct reading {
    struct srv_keys *keys;
    const char *path;
    char *message;
    size_t size;
};

/* The member that is being read, which messages name: keys[index].field */
struct member {
    struct reading *reading;
    struct srv_key *key;
    size_t index;
    const char *field;
    bool has_digest;
};

static bool refuse(const struct reading *reading, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    snprintf(reading->message, reading->size, "%s: %s", reading->path, what);
    return false;
}

static bool refuse_member(const struct member *member, const char *what)
{
    return refuse(member->reading, "keys[%zu].%.64s: %s", member->index, member->field, what);
}

static bool read_id(char out[SRV_ID_MAX + 1], const struct member *member, const json_t *value)
{
    const char *text = json_string_value(value);
    if (text == NULL || !srv_id_valid(text))
        return refuse_member(member,
                             "must be 1 to 64 letters, digits, '.', '_' or '-', the first a letter "
                             "or digit");
    memcpy(out, text, strlen(text) + 1);
    return true;
}

static bool read_group(struct member *member, json_t *value)
{
    return read_id(member->key->group, member, value);
}

static bool read_name(struct member *member, json_t *value)
{
    char name[SRV_ID_MAX + 1];
    const struct srv_keys *keys = member->reading->keys;
    if (!read_id(name, member, value))
        return false;
    for (size_t i = 0; i < keys->count; i++) {
        if (strcmp(keys->items[i].name, name) == 0)
            return refuse_member(member, "names an earlier key too");
    }
    memcpy(member->key->name, name, strlen(name) + 1);
    return true;
}

/* Whether the entry already has a key, after a refusal. */
static bool has_digest(const struct member *member)
{
    return member->has_digest && !refuse_member(member, "a key has either key or sha256");
}

/* A key consists of characters that a header field carries without quotes (RFC 6750, token68). */
static bool read_key(struct member *member, json_t *value)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=";
    const char *text = json_string_value(value);
    size_t length = json_string_length(value);
    if (has_digest(member))
        return false;
    if (text == NULL || length < SRV_KEY_MIN || length > SRV_KEY_MAX ||
        strspn(text, letters) != length)
        return refuse_member(member, "must be 32 to 256 letters, digits or -._~+/=");
    srv_key_digest(member->key->digest, text, length);
    explicit_bzero((char *)(uintptr_t)text, length); /* the tree is not read again */
    member->has_digest = true;
    return true;
}

static bool read_sha256(struct member *member, json_t *value)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    const char *text = json_string_value(value);
    size_t length = json_string_length(value), size;
    struct base16_decode_ctx context;
    if (has_digest(member))
        return false;
    if (length != SRV_KEY_DIGITS || strspn(text, digits) != length)
        return refuse_member(member, "must be the 64 hexadecimal digits of a key's SHA-256");
    base16_decode_init(&context);
    member->has_digest =
        base16_decode_update(&context, &size, member->key->digest, length, text) == 1;
    return true;
}

static bool read_scope(struct member *member, const json_t *value)
{
    const char *text = json_string_value(value);
    for (size_t i = 0; text != NULL && i < sizeof scope_names / sizeof scope_names[0]; i++) {
        if (strcmp(scope_names[i].text, text) != 0)
            continue;
        if ((member->key->scopes & scope_names[i].scope) != 0)
            return refuse_member(member, "names a scope twice");
        member->key->scopes |= scope_names[i].scope;
        return true;
    }
    return refuse_member(member,
                         "must be a list of \"infer\", \"admin\" and \"metrics\", at least one");
}

static bool read_scopes(struct member *member, json_t *value)
{
    size_t i;
    json_t *scope;
    json_array_foreach(value, i, scope) {
        if (!read_scope(member, scope))
            return false;
    }
    return json_array_size(value) > 0 || read_scope(member, NULL);
}

static bool is_quota(enum srv_quota *out, const char *field)
{
    for (enum srv_quota quota = 0; quota < SRV_QUOTAS; quota++) {
        *out = quota;
        if (strcmp(srv_quota_name(quota), field) == 0)
            return true;
    }
    return false;
}

/* Reads a limit; false where it is no number that a limit may be. */
static bool read_limit(size_t limits[SRV_QUOTAS], enum srv_quota quota, const json_t *value)
{
    json_int_t most = quota == SRV_QUOTA_REQUESTS ? MAX_REQUESTS_PER_S : MAX_LIMIT;
    json_int_t number = json_integer_value(value);
    limits[quota] = (size_t)number;
    return json_is_integer(value) && number >= 1 && number <= most;
}

static bool read_member(struct member *member, json_t *value)
{
    static const struct {
        const char *field;
        bool (*read)(struct member *member, json_t *value);
    } readers[] = {{"name", read_name},
                   {"key", read_key},
                   {"sha256", read_sha256},
                   {"scopes", read_scopes},
                   {"group", read_group}};
    enum srv_quota quota;
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++) {
        if (strcmp(readers[i].field, member->field) == 0)
            return readers[i].read(member, value);
    }
    if (!is_quota(&quota, member->field))
        return refuse_member(member, "unknown field");
    return read_limit(member->key->limits, quota, value) || refuse_member(member, NO_LIMIT);
}

static bool read_entry(struct reading *reading, json_t *object)
{
    struct srv_keys *keys = reading->keys;
    struct member member = {
        .reading = reading, .key = &keys->items[keys->count], .index = keys->count, .field = ""};
    json_t *value;
    if (!json_is_object(object))
        return refuse(reading, "keys[%zu]: must be an object", member.index);
    memcpy(member.key->limits, keys->defaults, sizeof keys->defaults);
    json_object_foreach(object, member.field, value) {
        if (!read_member(&member, value))
            return false;
    }
    const char *missing = member.key->name[0] == '\0' ? "name: is missing"
                          : member.key->scopes == 0   ? "scopes: is missing"
                          : !member.has_digest        ? "key: is missing, and so is sha256"
                                                      : NULL;
    if (missing != NULL)
        return refuse(reading, "keys[%zu].%s", member.index, missing);
    for (size_t i = 0; i < keys->count; i++)
        if (memeql_sec(keys->items[i].digest, member.key->digest, SRV_KEY_DIGEST))
            return refuse(reading, "keys[%zu]: is the same key as %s", member.index,
                          keys->items[i].name);
    keys->count++;
    return true;
}

static bool read_list(struct reading *reading, json_t *list)
{
    size_t i, count = json_array_size(list);
    json_t *object;
    if (count == 0 || count > SRV_MAX_KEYS)
        return refuse(reading, "keys: must be a list of 1 to %d keys", SRV_MAX_KEYS);
    json_array_foreach(list, i, object) {
        if (!read_entry(reading, object))
            return false;
    }
    return true;
}

static bool read_defaults(struct reading *reading, json_t *object)
{
    const char *field;
    json_t *value;
    enum srv_quota quota;
    for (size_t i = 0; i < SRV_QUOTAS; i++)
        reading->keys->defaults[i] = SRV_NO_QUOTA;
    if (object != NULL && !json_is_object(object))
        return refuse(reading, "defaults: must be an object");
    json_object_foreach(object, field, value) {
        if (!is_quota(&quota, field))
            return refuse(reading, "defaults.%.64s: unknown field", field);
        if (!read_limit(reading->keys->defaults, quota, value))
            return refuse(reading, "defaults.%.64s: %s", field, NO_LIMIT);
    }
    return true;
}

static bool read_metrics_keys(struct reading *reading, const json_t *value)
{
    reading->keys->metrics_keys = json_is_true(value);
    return value == NULL || json_is_boolean(value) ||
           refuse(reading, "metrics_keys: must be true or false");
}

static bool read_root(struct reading *reading, json_t *root)
{
    const char *field;
    json_t *value;
    if (!json_is_object(root))
        return refuse(reading, "must hold one JSON object");
    json_object_foreach(root, field, value) {
        if (strcmp(field, "keys") != 0 && strcmp(field, "defaults") != 0 &&
            strcmp(field, "metrics_keys") != 0)
            return refuse(reading, "unknown field \"%.64s\"", field);
    }
    return read_defaults(reading, json_object_get(root, "defaults")) &&
           read_metrics_keys(reading, json_object_get(root, "metrics_keys")) &&
           read_list(reading, json_object_get(root, "keys"));
}

bool srv_keys_read(struct srv_keys *out, const char *path, char *message, size_t size)
{
    struct reading reading = {.keys = out, .path = path, .message = message, .size = size};
    json_error_t error;
    char *text;
    size_t length;
    *out = (struct srv_keys){.count = 0};
    if (!srv_text_read(&text, &length, path, SRV_MAX_KEYS_BYTES, SRV_TEXT_SECRET, message, size))
        return false;
    json_t *root;
    enum attn_status status = attn_json_load(&root, text, length, JSON_REJECT_DUPLICATES, &error);
    srv_text_wipe(text, length);
    bool read = false;
    if (status == ATTN_OK)
        read = read_root(&reading, root);
    else if (status == ATTN_NO_MEMORY)
        refuse(&reading, "out of memory");
    else
        refuse(&reading, "line %d, column %d: %s", error.line, error.column,
               json_error_code(&error) == json_error_duplicate_key ? "a field that is given twice"
                                                                   : "not JSON");
    json_decref(root);
    if (!read)
        explicit_bzero(out, sizeof *out);
    return read;
}

/* ---- The keys in use ------------------------------------------------------------------------- */

/* Gives each key its account; false where there is no room for one. */
static bool find_accounts(struct srv_keys *keys, struct srv_accounts *accounts)
{
    bool found = true;
    for (size_t i = 0; i < keys->count && found; i++) {
        keys->items[i].account = srv_accounts_get(accounts, keys->items[i].name);
        found = keys->items[i].account != NULL;
    }
    return found;
}

static const size_t *limits_of(const struct srv_keys *keys, const struct srv_account *account)
{
    for (size_t i = 0; i < keys->count; i++)
        if (keys->items[i].account == account)
            return keys->items[i].limits;
    return keys->defaults;
}

/* Each account goes from its old limits to its new ones at once; one without a key has the
 * defaults. */
static void set_limits(struct srv_accounts *accounts, const struct srv_keys *keys)
{
    pthread_mutex_lock(&accounts->lock);
    memcpy(accounts->defaults, keys->defaults, sizeof accounts->defaults);
    for (size_t i = 0; i < accounts->count; i++)
        srv_account_set_limits(accounts->items[i], limits_of(keys, accounts->items[i]));
    pthread_mutex_unlock(&accounts->lock);
}

size_t srv_keyring_read(struct srv_keyring *ring, const char *path, char *message, size_t size)
{
    struct srv_keys read;
    if (!srv_keys_read(&read, path, message, size))
        return 0;
    if (!find_accounts(&read, &ring->accounts)) {
        snprintf(message, size, "%s: more than %d names of keys since the start, or no memory",
                 path, SRV_MAX_ACCOUNTS);
        return 0;
    }
    pthread_mutex_lock(&ring->lock);
    ring->keys = read;
    set_limits(&ring->accounts, &read);
    pthread_mutex_unlock(&ring->lock);
    return read.count;
}

void srv_keyring_fini(struct srv_keyring *ring) { srv_accounts_free(&ring->accounts); }
