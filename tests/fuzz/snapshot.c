/* snapshot.c: reading the files of a snapshot: session files (state_file.h) and bases.
 *
 * The first byte says what the other bytes are: with its second bit a base, else a session file.
 * Unless its first bit is set, checksums and the fingerprint are made right.  With its third bit
 * the file is larger than the window through which it is read. */
#include "base/checksum.h"
#include "saved.h"
#include "state_file.h"
#include "store/store_files.h"

#define GENERATION 7
#define BASE_SUM 32 /* place of the checksum of all before and after it */
#define BASE_HEAD 40
enum { RAW = 1, BASE = 2, LARGE = 4 };
#define SMALLEST_WINDOW 64

/* The epoch that the file says it has; the name of a file has it too. */
static uint64_t epoch_of(const char *bytes, size_t size)
{
    static const char name[] = "\"epoch\":\"";
    uint64_t epoch = 0;
    const char *at = memmem(bytes, size, name, sizeof name - 1);
    if (at == NULL)
        return 1;
    for (at += sizeof name - 1; at < bytes + size && *at >= '0' && *at <= '9'; at++)
        epoch = epoch * 10 + (uint64_t)(*at - '0');
    return epoch != 0 ? epoch : 1;
}

static void restore_session(const struct fuzz_input *in, bool repaired, size_t window)
{
    struct srv_restore restore;
    size_t size;
    saved_set_up();
    char *bytes = state_file(&size, in, repaired, saved.fingerprint);
    uint64_t epoch = epoch_of(bytes, size);
    saved_begin(&restore);
    struct srv_file_reader source = bytes_source(bytes, size, window);
    enum srv_restore_status result = srv_restore_file(
        &restore, &(struct srv_session_file){.epoch = epoch, .generation = GENERATION}, &source);
    FUZZ_EXPECT(result != SRV_RESTORE_UNREADABLE && source.error == 0);
    srv_file_reader_close(&source);
    const struct srv_restored_session *entry = srv_restore_find(&restore, epoch);
    FUZZ_EXPECT(entry != NULL && entry->lost == (result != SRV_RESTORE_OK));
    FUZZ_EXPECT((entry->session != NULL) == (result == SRV_RESTORE_OK));
    saved_end(&restore, true);
    free(bytes);
}

static void read_base(struct fuzz_input *in, bool repaired, size_t window)
{
    struct srv_base_session *told = malloc(srv_base_session_bytes(ATTN_MAX_LAYERS));
    struct srv_base_lists lists;
    XXH3_state_t sum;
    struct srv_base_size found;
    size_t size;
    unsigned char *bytes = (unsigned char *)fuzz_copy(&size, in, in->left);
    if (repaired && size >= BASE_HEAD) {
        XXH3_64bits_reset(&sum);
        XXH3_64bits_update(&sum, bytes, BASE_SUM);
        XXH3_64bits_update(&sum, bytes + BASE_HEAD, (size - BASE_HEAD) & ~(size_t)3);
        uint64_t right = XXH3_64bits_digest(&sum);
        memcpy(bytes + BASE_SUM, &right, sizeof right);
    }
    struct srv_file_reader source = bytes_source(bytes, size, window);
    if (srv_base_check(&found, &source, GENERATION)) {
        FUZZ_EXPECT(found.entries + found.shares <= (size - BASE_HEAD) / sizeof *lists.shares);
        FUZZ_EXPECT(srv_base_lists(&lists, &source, &found));
        if (found.entries > 0)
            srv_shares_replace(lists.shares, found.shares, lists.entries[found.entries - 1].epoch);
        srv_base_lists_fini(&lists);
        for (size_t at = found.sessions; at < found.sessions_end;)
            if (!srv_base_session(told, &at, &source, &found))
                break;
    }
    FUZZ_EXPECT(source.error == 0);
    srv_file_reader_close(&source);
    free(told);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    unsigned how = fuzz_byte(&in);
    size_t window = how & LARGE ? SMALLEST_WINDOW : WHOLE_WINDOW;
    if (how & BASE)
        read_base(&in, !(how & RAW), window);
    else
        restore_session(&in, !(how & RAW), window);
    return 0;
}
