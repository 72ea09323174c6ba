/* manifest.c: manifests, and the sessions that they describe.
 *
 * The first byte says how the other bytes become the two copies.  Unless its first bit is set,
 * numbers, checksums and chains of records and fingerprints of models are made right, as far as the
 * lengths of records lead from one to the next.  With its second bit the first copy has the first
 * half alone, and with its third bit the second copy.  Either copy alone has to give what both
 * give. */
#include <fcntl.h>
#include <unistd.h>

#include "saved.h"
#include "store/manifest.h"

#define GENERATION 2
#define SLOTS 64 /* of the file of blocks */
enum { RAW = 1, HALF = 2 };

static char path[] = "/dev/shm/attnd-fuzz-XXXXXX"; /* in memory */
static int directory = -1;

static void clean_up(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", path);
    FUZZ_EXPECT(system(command) == 0);
}

/* Writes a file, or with `bytes` NULL one of so many zeros. */
static void write_file(const char *name, const void *bytes, size_t size)
{
    const int fd = openat(directory, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_EXPECT(fd >= 0 && (bytes != NULL ? write(fd, bytes, size) == (ssize_t)size
                                          : ftruncate(fd, (off_t)size) == 0));
    close(fd);
}

static void set_up(void)
{
    char name[SRV_SLOT_FILE_NAME];
    if (directory >= 0)
        return;
    saved_set_up();
    FUZZ_EXPECT(mkdtemp(path) != NULL);
    directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    FUZZ_EXPECT(directory >= 0 && atexit(clean_up) == 0);
    srv_slot_file_name(name, GENERATION, SRV_SLOT_UNIT);
    write_file(name, NULL, SLOTS * SRV_SLOT_UNIT);
}

/* Makes the contents of a session's record right whose options are there. */
static void repair_session(unsigned char *payload, size_t size)
{
    struct srv_manifest_session facts;
    if (size < sizeof facts + sizeof(struct srv_record_create))
        return;
    memcpy(&facts, payload, sizeof facts);
    if (facts.has_options)
        memcpy(payload + sizeof facts + offsetof(struct srv_record_create, fingerprint),
               saved.fingerprint, 17);
}

static void repair(unsigned char *bytes, size_t size)
{
    struct srv_record_head head;
    uint64_t chain = 0, sequence = 1, synced = 1;
    for (size_t at = SRV_JOURNAL_HEAD; at < size && size - at >= sizeof head;) {
        unsigned char *payload = bytes + at + sizeof head;
        memcpy(&head, bytes + at, sizeof head);
        const size_t left = (size - at - sizeof head) & ~(size_t)3;
        const struct srv_record_part part = {
            payload, head.length < left ? (size_t)head.length & ~(size_t)3 : left};
        if (head.type == SRV_RECORD_SESSION)
            repair_session(payload, part.size);
        if (head.type == SRV_RECORD_MOMENT && part.size >= sizeof(struct srv_manifest_moment))
            memcpy(payload + offsetof(struct srv_manifest_moment, chain), &chain, sizeof chain);
        head.sequence = sequence++;
        head.synced = synced;
        srv_record_seal(&head, &part, 1);
        if (head.last & 1) {
            srv_record_mark_last(&head);
            synced = sequence;
        }
        chain = srv_manifest_chain(chain, &head);
        memcpy(bytes + at, &head, sizeof head);
        at += sizeof head + part.size;
    }
}

/* Reads the copies that have names, and makes the sessions that they describe; returns how many
 * there are. */
static size_t restore(struct srv_manifest_state *state, struct srv_slots *slots)
{
    struct srv_restore restore;
    size_t made = 0;
    const enum srv_manifest_reading reading =
        srv_manifest_read(state, directory, GENERATION, false);
    FUZZ_EXPECT(reading == (state->sections > 0 ? SRV_MANIFEST_READ : SRV_MANIFEST_NONE));
    saved_begin(&restore);
    restore.slots = slots;
    for (size_t i = 0; i < state->capacity; i++) {
        const struct srv_manifest_entry *entry = &state->entries[i];
        if (entry->epoch == 0)
            continue;
        FUZZ_EXPECT(entry->lost || entry->options != NULL);
        FUZZ_EXPECT(srv_manifest_find(state, entry->epoch) == entry);
        const enum srv_restore_status status = srv_restore_described(&restore, entry);
        FUZZ_EXPECT(status != SRV_RESTORE_UNREADABLE && (status != SRV_RESTORE_OK || !entry->lost));
        made += status == SRV_RESTORE_OK;
    }
    srv_restore_forget_blocks(&restore);
    saved_end(&restore, true);
    srv_manifest_state_fini(state);
    return made;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct srv_manifest_state states[3];
    char names[2][SRV_MANIFEST_NAME];
    const unsigned how = fuzz_byte(&in);
    size_t length, made[3];
    set_up();
    unsigned char *bytes = (unsigned char *)fuzz_copy(&length, &in, in.left);
    if (!(how & RAW))
        repair(bytes, length);
    for (size_t copy = 0; copy < 2; copy++) {
        srv_manifest_name(names[copy], GENERATION, copy);
        write_file(names[copy], bytes, how & HALF << copy ? length / 2 : length);
    }
    for (size_t i = 0; i < 3; i++) { /* both copies, the second alone, and the first alone */
        if (i > 0)
            unlinkat(directory, names[i - 1], 0);
        if (i == 2)
            write_file(names[0], bytes, length);
        struct srv_slots *slots = srv_slots_new(directory, GENERATION + 1, 0);
        FUZZ_EXPECT(slots != NULL);
        made[i] = restore(&states[i], slots);
        srv_slots_free(slots);
    }
    if (!(how & (HALF | HALF << 1)))
        FUZZ_EXPECT(made[0] == made[1] && made[0] == made[2]);
    free(bytes);
    return 0;
}
