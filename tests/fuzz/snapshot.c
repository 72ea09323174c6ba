/* snapshot.c: what a snapshot is made of: session files (state_file.h) and bases.
 *
 * The first byte says which (its second bit: a base) and, unless it is odd, that sums and
 * fingerprint are made right. */
#include "saved.h"
#include "state_file.h"
#include "store_files.h"
#include "sum.h"

#define GENERATION 7
#define BASE_SUM 32 /* where a base has the sum of what stands before it and behind it */
#define BASE_HEAD 40
enum { RAW = 1, BASE = 2 };

/* The number that the file says is its epoch: the name of a file has it too. */
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

static void restore_session(const struct fuzz_input *in, bool repaired)
{
    struct srv_restore restore;
    size_t size;
    saved_set_up();
    char *bytes = state_file(&size, in, repaired, saved.fingerprint);
    uint64_t epoch = epoch_of(bytes, size);
    saved_begin(&restore);
    enum srv_restoring result = srv_restore_file(&restore, epoch, GENERATION, bytes, size);
    const struct srv_restored *entry = srv_restore_find(&restore, epoch);
    FUZZ_EXPECT(entry != NULL && entry->lost == (result != SRV_RESTORE_OK));
    FUZZ_EXPECT((entry->session != NULL) == (result == SRV_RESTORE_OK));
    saved_end(&restore, true);
    free(bytes);
}

static void read_base(struct fuzz_input *in, bool repaired)
{
    const struct srv_base_entry *entries = NULL;
    struct srv_sum sum;
    size_t size, count = 0;
    unsigned char *bytes = (unsigned char *)fuzz_copy(&size, in, in->left);
    if (repaired && size >= BASE_HEAD) {
        srv_sum_init(&sum);
        srv_sum_add(&sum, bytes, BASE_SUM);
        srv_sum_add(&sum, bytes + BASE_HEAD, (size - BASE_HEAD) & ~(size_t)3);
        uint64_t right = srv_sum_end(&sum);
        memcpy(bytes + BASE_SUM, &right, sizeof right);
    }
    if (srv_base_read(&entries, &count, GENERATION, bytes, size))
        FUZZ_EXPECT(BASE_HEAD + count * sizeof *entries == size);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    unsigned how = fuzz_byte(&in);
    if (how & BASE)
        read_base(&in, !(how & RAW));
    else
        restore_session(&in, !(how & RAW));
    return 0;
}
