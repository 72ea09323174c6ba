/* keys.c: fuzzes a file of API keys and, after a NUL each, strings that a caller sends as keys. */
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/keys.h"
#include "fuzz.h"

static int file = -1;
static char path[32];

static void set_up(void)
{
    if (file >= 0)
        return;
    file = memfd_create("keys.json", 0);
    FUZZ_EXPECT(file >= 0 && fchmod(file, 0600) == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
}

static void write_text(const char *text, size_t length)
{
    FUZZ_EXPECT(ftruncate(file, 0) == 0);
    FUZZ_EXPECT(pwrite(file, text, length, 0) == (ssize_t)length);
}

static const struct srv_key *find(const struct srv_keys *keys, const char *key, size_t length)
{
    unsigned char digest[SRV_KEY_DIGEST];
    srv_key_digest(digest, key, length);
    return srv_keys_find(keys, digest);
}

/* Every key of the list must be complete, and only texts of the file may find one. */
static void look_at(const struct srv_keys *keys, const char *text)
{
    FUZZ_EXPECT(keys->count >= 1 && keys->count <= SRV_MAX_KEYS);
    for (size_t i = 0; i < keys->count; i++) {
        FUZZ_EXPECT(keys->items[i].name[0] != '\0' && keys->items[i].scopes != 0);
        FUZZ_EXPECT(srv_scopes_text(keys->items[i].scopes)[0] != 'n');
    }
    FUZZ_EXPECT(find(keys, text, 1) == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct srv_keys keys;
    struct fuzz_input in = {data, size};
    char message[SRV_MESSAGE_MAX] = "";
    size_t length;
    char *text = fuzz_text(&length, &in, in.left);
    set_up();
    write_text(text, strlen(text));
    bool read = srv_keys_read(&keys, path, message);
    FUZZ_EXPECT(read == (message[0] == '\0') && read == (keys.count > 0));
    if (read)
        look_at(&keys, text);
    for (char *at = text + strlen(text); read && at < text + length; at += strlen(at)) {
        const struct srv_key *key = find(&keys, at, strlen(at));
        FUZZ_EXPECT(key == NULL || (key >= keys.items && key < keys.items + keys.count));
        at++;
    }
    free(text);
    return 0;
}
