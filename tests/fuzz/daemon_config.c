/* daemon_config.c: fuzzes attnd.json and, after a NUL each, flags (--name=value) or variables. */
#include <sys/mman.h>
#include <unistd.h>

#include "base/buffer.h"
#include "config/config.h"
#include "fuzz.h"

#define MAX_WORDS 16

static int file = -1;
static char path[32];

static void set_up(void)
{
    if (file >= 0)
        return;
    file = memfd_create("attnd.json", 0);
    FUZZ_EXPECT(file >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
}

static void write_text(const char *text, size_t length)
{
    FUZZ_EXPECT(ftruncate(file, 0) == 0);
    FUZZ_EXPECT(pwrite(file, text, length, 0) == (ssize_t)length);
}

/* Whether the word names a configuration file, of which only the fuzzed one is read. */
static bool names_a_file(const char *word)
{
    return strncmp(word, "--config", 8) == 0 || strncmp(word, "ATTN_CONFIG", 11) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    char *argv[MAX_WORDS + 4] = {"attnd", "--config", path}, *environ[MAX_WORDS + 1] = {NULL};
    char message[SRV_MESSAGE_MAX] = "";
    struct srv_config config = {0};
    int argc = 3, variables = 0;
    size_t length;
    char *text = fuzz_text(&length, &in, in.left);
    set_up();
    write_text(text, strlen(text));
    for (char *at = text + strlen(text); at < text + length; at += strlen(at)) {
        at++;
        if (argc + variables == MAX_WORDS || *at == '\0' || names_a_file(at))
            continue;
        if (*at == '-')
            argv[argc++] = at;
        else
            environ[variables++] = at;
    }
    bool read = srv_config_read(&config, argc, argv, environ, message);
    FUZZ_EXPECT(read == (message[0] == '\0') && strlen(message) < sizeof message);
    if (read) {
        struct srv_buffer out;
        srv_buffer_init(&out, 1 << 20);
        srv_config_print(&out, &config);
        srv_config_help(&out);
        FUZZ_EXPECT(out.length > 0);
        srv_buffer_fini(&out);
    }
    srv_config_fini(&config);
    free(text);
    return 0;
}
