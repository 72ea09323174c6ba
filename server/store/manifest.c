/* manifest.c: writing a manifest.
 *
 * Both copies get the same bytes, a section with one batch of records.  A new file is written under
 * another name, flushed and renamed.  Where a section could not be written and flushed in both
 * copies, nobody knows whether it counts: the next one begins a new file. */
#include "store/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"
#include "store/store_files.h"

#define LEAST_BYTES ((uint64_t)64 << 10) /* of later sections, below which no new file is due */

_Static_assert(sizeof(struct srv_manifest_session) == 56 &&
                   sizeof(struct srv_manifest_layer) == 40 &&
                   sizeof(struct srv_manifest_block) == 16 &&
                   sizeof(struct srv_manifest_moment) == 40,
               "no padding");

void srv_manifest_name(char out[SRV_MANIFEST_NAME], uint64_t generation, size_t copy)
{
    struct srv_file file;
    srv_file_name(&file, copy == 0 ? SRV_FILE_MANIFEST : SRV_FILE_COPY, generation);
    memcpy(out, file.name, SRV_MANIFEST_NAME);
}

uint64_t srv_manifest_chain(uint64_t chain, const struct srv_record_head *head)
{
    return XXH3_64bits_withSeed(&head->head_sum, sizeof head->head_sum, chain);
}

bool srv_manifest_is_due(const struct srv_manifest *manifest)
{
    const uint64_t later = manifest->copies[0].length - manifest->first_bytes;
    return manifest->named == 0 || manifest->broken ||
           (later > manifest->first_bytes && later > LEAST_BYTES);
}

/* Closes the files; those that were not finished are removed. */
static void close_copies(struct srv_manifest *manifest, bool unfinished)
{
    char name[SRV_MANIFEST_NAME];
    for (size_t i = 0; i < 2 && manifest->named != 0; i++) {
        srv_journal_close(&manifest->copies[i]);
        srv_manifest_name(name, manifest->named, i);
        if (unfinished)
            srv_file_abandon(manifest->directory, -1, name);
    }
    manifest->named = 0;
}

static void open_copies(struct srv_manifest *manifest)
{
    char name[SRV_MANIFEST_NAME];
    close_copies(manifest, false);
    manifest->named = manifest->generation;
    manifest->broken = false;
    manifest->chain = 0;
    for (size_t i = 0; i < 2; i++)
        manifest->copies[i] = (struct srv_journal){.fd = -1};
    for (size_t i = 0; i < 2 && manifest->error == 0; i++) {
        srv_manifest_name(name, manifest->named, i);
        const int fd = srv_file_begin(manifest->directory, name);
        if (fd < 0 || !srv_journal_open(&manifest->copies[i], fd, manifest->named)) {
            manifest->error = errno;
            if (fd >= 0)
                close(fd);
        }
        manifest->copies[i].older_synced = true;
    }
}

void srv_manifest_begin(struct srv_manifest *manifest, int directory, uint64_t generation)
{
    manifest->is_first = srv_manifest_is_due(manifest);
    manifest->directory = directory;
    manifest->generation = generation;
    manifest->num_changed = 0;
    manifest->error = 0;
    if (manifest->is_first)
        open_copies(manifest);
}

static void add_record(struct srv_manifest *manifest, const struct srv_record_head *head,
                       const struct srv_record_part parts[], size_t count)
{
    for (size_t i = 0; i < 2 && manifest->error == 0; i++) {
        struct srv_record_head filled = *head;
        srv_journal_add(&manifest->copies[i], &filled, parts, count);
        if (i == 1 && filled.type == SRV_RECORD_SESSION)
            manifest->chain = srv_manifest_chain(manifest->chain, &filled);
    }
}

/* ---- Sessions -------------------------------------------------------------------------------- */

static bool list_changed(struct srv_manifest *manifest, uint64_t epoch)
{
    if (manifest->num_changed == manifest->capacity) {
        const size_t capacity = 2 * manifest->capacity + 64;
        uint64_t *more = realloc(manifest->changed, capacity * sizeof *more);
        if (more == NULL)
            return false;
        manifest->changed = more;
        manifest->capacity = capacity;
    }
    manifest->changed[manifest->num_changed++] = epoch;
    return true;
}

/* The index of a generation in the record; SRV_MANIFEST_FILES where there are too many. */
static uint32_t find_file(uint64_t files[], uint32_t *count, uint64_t generation)
{
    uint32_t i = 0;
    while (i < *count && files[i] != generation)
        i++;
    if (i == *count && i < SRV_MANIFEST_FILES)
        files[(*count)++] = generation;
    return i;
}

/* Writes references as a file has them; false where they name too many files. */
static bool pack(struct srv_manifest_block out[], uint64_t files[], uint32_t *num_files,
                 const struct srv_description *session)
{
    for (size_t i = 0; i < session->facts.num_blocks; i++) {
        const struct srv_block_place *block = &session->blocks[i];
        const uint32_t file = find_file(files, num_files, block->generation);
        if (file == SRV_MANIFEST_FILES)
            return false;
        out[i] = (struct srv_manifest_block){block->slot << 16 | (uint64_t)file << 8 | block->rows,
                                             block->sum};
    }
    return true;
}

void srv_manifest_add(struct srv_manifest *manifest, const struct srv_description *session)
{
    uint64_t files[SRV_MANIFEST_FILES];
    struct srv_manifest_session facts = session->facts;
    struct srv_manifest_block *blocks = malloc((facts.num_blocks + 1) * sizeof *blocks);
    facts.has_options = session->options != NULL;
    facts.num_files = 0;
    if (blocks == NULL || !list_changed(manifest, session->epoch))
        manifest->error = ENOMEM;
    else if (!pack(blocks, files, &facts.num_files, session))
        manifest->error = EOVERFLOW;
    const struct srv_record_head head = {.type = SRV_RECORD_SESSION, .epoch = session->epoch};
    const struct srv_record_part parts[] = {
        {&facts, sizeof facts},
        {session->options, facts.has_options ? sizeof *session->options : 0},
        {files, facts.num_files * sizeof *files},
        {session->layers, facts.num_layers * sizeof *session->layers},
        {blocks, facts.num_blocks * sizeof *blocks},
    };
    add_record(manifest, &head, parts, sizeof parts / sizeof *parts);
    free(blocks);
}

/* ---- The end --------------------------------------------------------------------------------- */

static void add_moment(struct srv_manifest *manifest, uint64_t time_ns, const uint64_t ended[],
                       size_t num_ended)
{
    const struct srv_record_head head = {.type = SRV_RECORD_MOMENT};
    const struct srv_manifest_moment moment = {
        .generation = manifest->generation,
        .time_ns = time_ns,
        .num_changed = manifest->num_changed,
        .num_ended = num_ended,
        .chain = manifest->chain,
    };
    const struct srv_record_part parts[] = {
        {&moment, sizeof moment},
        {manifest->changed, manifest->num_changed * sizeof *manifest->changed},
        {ended, num_ended * sizeof *ended},
    };
    add_record(manifest, &head, parts, sizeof parts / sizeof *parts);
}

/* Gives both copies their names.  From the first rename on the file may count. */
static void name_copies(struct srv_manifest *manifest)
{
    char name[SRV_MANIFEST_NAME], other[SRV_MANIFEST_NAME + 4];
    for (size_t i = 0; i < 2 && manifest->error == 0; i++) {
        srv_manifest_name(name, manifest->named, i);
        snprintf(other, sizeof other, "%s.new", name);
        if (renameat(manifest->directory, other, manifest->directory, name) != 0)
            manifest->error = errno;
        manifest->broken = manifest->broken || manifest->error == 0;
    }
    if (manifest->error == 0 && !srv_sync_directory(manifest->directory))
        manifest->error = errno;
    manifest->broken = manifest->broken && manifest->error != 0;
}

bool srv_manifest_end(struct srv_manifest *manifest, uint64_t time_ns, const uint64_t ended[],
                      size_t num_ended)
{
    add_moment(manifest, time_ns, ended, num_ended);
    for (size_t i = 0; i < 2; i++) {
        if (manifest->error !=
            0) /* of either copy: the other's batch is undone, or the file goes */
            manifest->copies[i].error = manifest->error;
        const int error = srv_journal_flush(&manifest->copies[i], true);
        manifest->error = manifest->error != 0 ? manifest->error : error;
    }
    if (manifest->error == 0 && manifest->is_first)
        name_copies(manifest);
    const int error = manifest->error;
    if (error == 0)
        manifest->chain = srv_manifest_chain(manifest->chain, &manifest->copies[0].head);
    else if (manifest->is_first && !manifest->broken)
        close_copies(manifest, true);
    else
        manifest->broken = true;
    if (error == 0 && manifest->is_first)
        manifest->first_bytes = manifest->copies[0].length;
    errno = error;
    return error == 0;
}

void srv_manifest_fini(struct srv_manifest *manifest)
{
    close_copies(manifest, false);
    free(manifest->changed);
    *manifest = (struct srv_manifest){0};
}
