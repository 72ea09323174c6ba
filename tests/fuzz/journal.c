/* journal.c: replaying journals.
 *
 * The first byte says how the other bytes become the file.  Unless its first bit is set, magics,
 * checksums and lengths of records are made right; unless its second bit is set, their numbers too;
 * unless its third bit is set, fingerprints of models too.  So the contents of records are reached.
 * Reading through a small window has to give the same result as through a large one. */
#include "saved.h"
#include "store/record.h"

#define GENERATION 1
enum { RAW = 1, NUMBERS_AS_THEY_ARE = 2, MODEL_AS_IT_IS = 4 };

/* Seals the records, as far as their lengths lead from one to the next. */
static void seal(unsigned char *bytes, size_t size, unsigned how)
{
    struct srv_record_head head;
    uint64_t sequence = 1, synced = 1;
    for (size_t at = SRV_JOURNAL_HEAD; at < size && size - at >= sizeof head;) {
        memcpy(&head, bytes + at, sizeof head);
        size_t left = (size - at - sizeof head) & ~(size_t)3;
        const struct srv_record_part part = {
            bytes + at + sizeof head, head.length < left ? (size_t)head.length & ~(size_t)3 : left};
        bool makes = head.type == SRV_RECORD_CREATE || head.type == SRV_RECORD_FORK;
        if (!(how & MODEL_AS_IT_IS) && makes && part.size >= sizeof(struct srv_record_create))
            memcpy(bytes + at + sizeof head + offsetof(struct srv_record_create, fingerprint),
                   saved.fingerprint, 17);
        if (!(how & NUMBERS_AS_THEY_ARE)) {
            head.sequence = sequence++;
            head.synced = synced;
        }
        srv_record_seal(&head, &part, 1);
        if (head.last & 1) {
            srv_record_mark_last(&head);
            synced = sequence;
        }
        memcpy(bytes + at, &head, sizeof head);
        at += sizeof head + part.size;
    }
}

static struct srv_replay_result replay(enum srv_restore_status *result, const void *bytes,
                                       size_t size, size_t window)
{
    struct srv_restore restore;
    struct srv_replay_result replayed;
    struct srv_file_reader source = bytes_source(bytes, size, window);
    saved_begin(&restore);
    *result = srv_restore_journal(&replayed, &restore, GENERATION, &source);
    FUZZ_EXPECT(*result != SRV_RESTORE_UNREADABLE && source.error == 0);
    srv_file_reader_close(&source);
    FUZZ_EXPECT(replayed.good <= size && replayed.records <= size / SRV_RECORD_HEAD);
    saved_end(&restore, *result == SRV_RESTORE_OK);
    return replayed;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    enum srv_restore_status result, again;
    unsigned how = fuzz_byte(&in);
    size_t length;
    unsigned char *bytes = (unsigned char *)fuzz_copy(&length, &in, in.left);
    saved_set_up();
    if (!(how & RAW)) {
        if (length >= SRV_JOURNAL_HEAD)
            srv_journal_print_head(bytes, GENERATION);
        seal(bytes, length, how);
    }
    struct srv_replay_result whole = replay(&result, bytes, length, WHOLE_WINDOW);
    struct srv_replay_result pieces = replay(&again, bytes, length, SMALL_WINDOW);
    FUZZ_EXPECT(result == again && whole.good == pieces.good && whole.records == pieces.records &&
                whole.gaps == pieces.gaps && whole.torn == pieces.torn);
    /* A sound journal without its torn tail gives the same. */
    if (result == SRV_RESTORE_OK && whole.torn && whole.gaps == 0) {
        struct srv_replay_result part = replay(&again, bytes, whole.good, WHOLE_WINDOW);
        FUZZ_EXPECT(again == SRV_RESTORE_OK && whole.records == part.records);
    }
    free(bytes);
    return 0;
}
