/* store_check.c: one line for each file of a state directory. */
#include "store/store_check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/identity.h"
#include "store/record.h"
#include "store/restore.h"
#include "store/store.h"
#include "store/store_files.h"
#include "store/versions.h"

/* How a file was found.  A torn journal ends in a write that nobody was answered for, which
 * is no damage. */
enum verdict { SOUND, TORN, DAMAGED, LATER, UNREADABLE };

static const char *const verdicts[] = {
    [SOUND] = "sound", [TORN] = "torn", [DAMAGED] = "damaged", [LATER] = "of another version"};

struct checked {
    enum verdict verdict;
    char text[256];            /* what it holds, or what is wrong */
    uint64_t end;              /* of a journal: the number of the record that would follow */
    struct srv_place previous; /* of a journal: where the one before ended; generation 0: unknown */
};

static enum verdict fail(struct checked *out, enum verdict verdict, const char *why)
{
    snprintf(out->text, sizeof out->text, "%s", why);
    return verdict;
}

/* ---- Files of blocks ------------------------------------------------------------------------- */

/* The blocks themselves are read with the sessions that have them. */
static enum verdict check_blocks(struct checked *out, struct srv_file_reader *reader,
                                 const struct srv_file *file)
{
    snprintf(out->text, sizeof out->text, "%zu slots of %zu bytes", reader->size / file->slot_bytes,
             file->slot_bytes);
    return SOUND;
}

/* ---- Journals and manifests ------------------------------------------------------------------ */

static const char *const type_names[] = {
    [SRV_RECORD_CREATE] = "create", [SRV_RECORD_FORK] = "fork",
    [SRV_RECORD_ROWS] = "rows",     [SRV_RECORD_TRUNCATE] = "truncate",
    [SRV_RECORD_COMMIT] = "commit", [SRV_RECORD_DELETE] = "delete",
    [SRV_RECORD_MARK] = "mark",     [SRV_RECORD_SESSION] = "session",
    [SRV_RECORD_MOMENT] = "moment",
};
#define NUM_TYPES (sizeof type_names / sizeof type_names[0])

struct journal_count {
    size_t records, of_type[NUM_TYPES];
    size_t gaps, first_gap; /* places, and the byte of the first */
    uint64_t missing;       /* records, in all gaps */
    struct srv_place previous;
};

/* Reads a journal to its end; returns how the last reading went. */
static enum srv_reading count_records(struct journal_count *out, struct srv_journal_reader *journal)
{
    struct srv_record record;
    enum srv_reading reading = SRV_READ_RECORD;
    struct srv_record_mark mark;
    while (reading == SRV_READ_RECORD || reading == SRV_READ_GAP) {
        size_t at = journal->at;
        reading = srv_journal_read(&record, journal);
        if (reading == SRV_READ_RECORD && record.head.sequence == 1 &&
            srv_restore_read_mark(&mark, &record))
            out->previous = mark.previous;
        if (reading == SRV_READ_GAP) {
            out->first_gap = out->gaps++ == 0 ? at : out->first_gap;
            out->missing += journal->missing;
        } else if (reading == SRV_READ_RECORD) {
            out->records++;
            out->of_type[record.head.type < NUM_TYPES ? record.head.type : 0]++;
        }
    }
    return reading;
}

/* Appends to the file's text. */
static void add_text(struct checked *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add_text(struct checked *out, const char *format, ...)
{
    size_t length = strlen(out->text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(out->text + length, sizeof out->text - length, format, arguments);
    va_end(arguments);
}

static void print_count(struct checked *out, const struct journal_count *count)
{
    add_text(out, "%zu records", count->records);
    for (size_t type = 1; type < NUM_TYPES; type++)
        if (count->of_type[type] > 0)
            add_text(out, ", %zu %s", count->of_type[type], type_names[type]);
}

static enum verdict check_journal(struct checked *out, struct srv_file_reader *reader,
                                  const struct srv_file *file)
{
    struct srv_journal_reader journal;
    struct journal_count count = {0};
    srv_journal_read_open(&journal, reader, file->generation);
    enum srv_reading end = count_records(&count, &journal);
    if (end == SRV_READ_FAILED)
        return fail(out, UNREADABLE, strerrordesc_np(reader->error));
    out->end = journal.sequence;
    out->previous = count.previous;
    print_count(out, &count);
    if (journal.head_damaged)
        add_text(out, "; its head is damaged");
    if (count.gaps > 0)
        add_text(out, "; %zu damaged places, the first at byte %zu, have lost %llu records",
                 count.gaps, count.first_gap, (unsigned long long)count.missing);
    if (end == SRV_READ_TORN)
        add_text(out, "; ends at byte %zu of %zu", journal.at, reader->size);
    if (end == SRV_READ_TORN && journal.dropped > 0)
        add_text(out, ", before %zu sound records of later writes", journal.dropped);
    const bool names_nothing =
        file->kind != SRV_FILE_JOURNAL && count.of_type[SRV_RECORD_MOMENT] == 0;
    if (count.gaps > 0 || journal.head_damaged || names_nothing ||
        (end == SRV_READ_TORN && journal.dropped > 0))
        return DAMAGED;
    return end == SRV_READ_TORN ? TORN : SOUND;
}

/* ---- All ------------------------------------------------------------------------------------- */

/* False where the file cannot be read. */
static bool check_file(struct checked *out, const struct srv_file *file, int directory)
{
    static enum verdict (*const checks[])(struct checked *, struct srv_file_reader *,
                                          const struct srv_file *) = {
        [SRV_FILE_JOURNAL] = check_journal,
        [SRV_FILE_MANIFEST] = check_journal,
        [SRV_FILE_COPY] = check_journal,
        [SRV_FILE_BLOCKS] = check_blocks,
    };
    struct srv_file_reader reader;
    char version[SRV_VERSION_TEXT];
    *out = (struct checked){.verdict = SOUND};
    if (file->kind == SRV_FILE_UNFINISHED) {
        add_text(out, "was not finished; a start removes it");
        return true;
    }
    if (!srv_file_reader_open(&reader, directory, file->name)) {
        out->verdict = fail(out, UNREADABLE, strerror(errno));
        return false;
    }
    out->verdict = srv_version_is_other(version, &reader, file)
                       ? fail(out, LATER, version)
                       : checks[file->kind](out, &reader, file);
    if (reader.error != 0)
        out->verdict = fail(out, UNREADABLE, strerror(reader.error));
    srv_file_reader_close(&reader);
    return out->verdict != UNREADABLE;
}

/* The journals before the one that is being checked. */
struct order {
    struct srv_place end; /* of the last one that has records; generation 0: there was none */
    uint64_t expected;    /* the generation that follows; 0: any */
};

/* Whether journals, or the end of one, are missing before this one; adds so to its text. */
static bool misses_records(struct checked *checked, const struct srv_file *file,
                           struct order *order)
{
    const struct srv_place *previous = &checked->previous;
    if (order->end.generation == 0)
        order->end = (struct srv_place){file->generation, 1};
    bool hole = order->expected != 0 && file->generation != order->expected;
    if (checked->verdict == LATER) /* where it ends is not known */
        checked->end = UINT64_MAX;
    bool cut =
        previous->generation > order->end.generation ||
        (previous->generation == order->end.generation && previous->sequence > order->end.sequence);
    if (hole)
        add_text(checked, "; a journal before it is missing");
    else if (cut)
        add_text(checked, "; records are missing at the end of the journal before it");
    order->expected = file->generation + 1;
    if (checked->end > 1)
        order->end = (struct srv_place){file->generation, checked->end};
    return hole || cut;
}

/* Checks the files of the list; false, with the message, where one cannot be read.  `whole` counts
 * those that are damaged or of another version; NULL: the files do not belong together. */
static bool check_files(struct srv_store_check *whole, struct srv_buffer *text,
                        const struct srv_file files[], size_t count, int directory,
                        char message[SRV_STORE_CHECK_MESSAGE])
{
    struct order order = {0};
    for (size_t i = 0; i < count; i++) {
        struct checked checked;
        if (!check_file(&checked, &files[i], directory)) {
            snprintf(message, SRV_STORE_CHECK_MESSAGE, "%s: %s", files[i].name, checked.text);
            return false;
        }
        if (whole != NULL && files[i].kind == SRV_FILE_JOURNAL &&
            misses_records(&checked, &files[i], &order) && checked.verdict != LATER)
            checked.verdict = DAMAGED;
        srv_buffer_printf(text, "%s: %s: %s\n", files[i].name, verdicts[checked.verdict],
                          checked.text);
        if (whole == NULL)
            continue;
        whole->damaged += checked.verdict == DAMAGED;
        whole->later += checked.verdict == LATER;
    }
    return true;
}

/* Checks the file that says whose the sessions are; a directory of an older version has none. */
static bool check_identity(struct srv_store_check *out, struct srv_buffer *text, int directory,
                           char message[SRV_STORE_CHECK_MESSAGE])
{
    struct srv_identity identity;
    char why[128];
    enum srv_identity_status status = srv_identity_read(&identity, directory, why, sizeof why);
    if (status == SRV_IDENTITY_UNREADABLE)
        snprintf(message, SRV_STORE_CHECK_MESSAGE, "%s: %s", SRV_IDENTITY_FILE, why);
    out->files += status != SRV_IDENTITY_NONE;
    out->damaged += status == SRV_IDENTITY_DAMAGED;
    out->later += status == SRV_IDENTITY_LATER;
    if (status == SRV_IDENTITY_DAMAGED || status == SRV_IDENTITY_LATER)
        srv_buffer_printf(text, "%s: %s: %s\n", SRV_IDENTITY_FILE,
                          verdicts[status == SRV_IDENTITY_LATER ? LATER : DAMAGED], why);
    if (status == SRV_IDENTITY_SOUND)
        srv_buffer_printf(text, "%s: sound: instance %s, generation %s\n", SRV_IDENTITY_FILE,
                          identity.instance, identity.generation);
    return status != SRV_IDENTITY_UNREADABLE;
}

static void print_lost(void *context, uint64_t epoch, bool without_manifest)
{
    srv_buffer_printf(context, "session %016llx: lost: %s\n", (unsigned long long)epoch,
                      without_manifest ? "its record or a block of it is damaged or missing"
                                       : "records are missing that may be its own");
}

/* Counts what a start would restore; one is refused over files of a later version. */
static bool count_sessions(struct srv_store_check *out, struct srv_buffer *text, int directory,
                           char message[SRV_STORE_CHECK_MESSAGE])
{
    struct srv_store_count count = {.report = print_lost, .context = text};
    if (out->later > 0)
        return true;
    bool counted = srv_store_count(&count, directory, message, SRV_STORE_CHECK_MESSAGE);
    out->served = count.served;
    out->expired = count.expired;
    out->lost = count.lost;
    return counted;
}

bool srv_store_check(struct srv_store_check *out, struct srv_buffer *text, int directory,
                     char message[SRV_STORE_CHECK_MESSAGE])
{
    struct srv_file *files = NULL, *aside = NULL;
    *out = (struct srv_store_check){0};
    bool listed = srv_files_list(&files, &out->files, directory) &&
                  srv_files_list_set_aside(&aside, &out->set_aside, directory);
    if (!listed)
        snprintf(message, SRV_STORE_CHECK_MESSAGE, "%s", strerror(errno));
    bool read = listed;
    if (read)
        read = check_files(out, text, files, out->files, directory, message) &&
               check_files(NULL, text, aside, out->set_aside, directory, message) &&
               check_identity(out, text, directory, message) &&
               count_sessions(out, text, directory, message);
    free(files);
    free(aside);
    return read;
}
