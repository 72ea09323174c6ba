/* disk.c: applies a log to files in memory, leaving out what the disk may have left out. */
#include "disk.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096
#define NEAR 3 /* entries around a sync or name */

uint64_t disk_draw(uint64_t *random, uint64_t n)
{
    *random += 0x9e3779b97f4a7c15;
    uint64_t x = *random;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return (x ^ (x >> 31)) % n;
}

/* ---- The log --------------------------------------------------------------------------------- */

static const char *bytes_of(const struct power_op *op) { return (const char *)(op + 1); }

static bool ends_in(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return length >= tail && strcmp(name + length - tail, end) == 0;
}

static bool is_journal(const struct disk *disk, uint32_t file)
{
    return ends_in(disk->created[file], ".journal");
}

static bool is_blocks(const struct disk *disk, uint32_t file)
{
    return ends_in(disk->created[file], ".blocks");
}

static bool is_copy(const struct disk *disk, uint32_t file)
{
    return strstr(disk->created[file], ".copy") != NULL;
}

static bool is_manifest(const struct disk *disk, uint32_t file)
{
    return strstr(disk->created[file], ".manifest") != NULL || is_copy(disk, file);
}

/* Marks the writes of a file that no sync before `begin` covers, which is one that failed. */
static void doubt(struct disk *disk, uint64_t begin)
{
    const uint32_t file = disk->ops[begin]->file;
    uint64_t from = 0;
    for (uint64_t i = 0; i < begin; i++)
        if (disk->ops[i]->kind == POWER_SYNC_END &&
            (disk->ops[i]->file == file || disk->ops[i]->file == POWER_ALL))
            from = disk->ops[i]->at;
    for (uint64_t i = from; i < begin; i++)
        if (disk->ops[i]->file == file && disk->ops[i]->kind == POWER_WRITE &&
            disk->doubted_at[i] == 0)
            disk->doubted_at[i] = begin;
}

void disk_open(struct disk *out, const struct power_log *log)
{
    uint64_t section = 0, begun = 0, at = 0; /* begun: the newest snapshot's first flush or write */
    *out = (struct disk){.log = log, .count = atomic_load(&log->count)};
    out->ops = calloc(out->count + 1, sizeof *out->ops);
    out->removed_at = calloc(out->count + 1, sizeof *out->removed_at);
    out->created = calloc(log->files, sizeof *out->created);
    out->named_at = calloc(log->files, sizeof *out->named_at);
    ck_assert(out->ops != NULL && out->removed_at != NULL);
    out->doubted_at = calloc(out->count + 1, sizeof *out->doubted_at);
    ck_assert(out->created != NULL && out->named_at != NULL && out->doubted_at != NULL);
    for (uint32_t file = 0; file < log->files; file++)
        out->created[file] = "";
    for (uint64_t i = 0; i < out->count; i++) {
        const struct power_op *op = (const void *)(log->entries + at);
        out->ops[i] = op;
        at += sizeof *op + ((op->size + 7) & ~(uint64_t)7);
        if (op->kind == POWER_CREATE)
            out->created[op->file] = bytes_of(op);
        if (op->kind == POWER_RENAME && out->named_at[op->file] == 0)
            out->named_at[op->file] = i;
        if (begun == 0 && ((op->kind == POWER_SYNC_BEGIN && is_blocks(out, op->file)) ||
                           (op->kind == POWER_WRITE && is_manifest(out, op->file))))
            begun = i;
        if (op->kind == POWER_SYNC_BEGIN && is_copy(out, op->file)) { /* the last of a section */
            section = begun;
            begun = 0;
        }
        out->removed_at[i] = op->kind == POWER_UNLINK && section > 0 ? section : i;
        if (op->kind == POWER_SYNC_FAILED)
            doubt(out, op->at);
    }
}

void disk_close(struct disk *disk)
{
    free(disk->ops);
    free(disk->removed_at);
    free(disk->created);
    free(disk->named_at);
    free(disk->doubted_at);
}

/* Of entry `end`, which ended a sync: the index up to which the sync covers `file`; 0 where it does
 * not. */
static uint64_t covers(const struct disk *disk, uint64_t end, uint32_t file, enum disk_plant plant)
{
    const struct power_op *op = disk->ops[end];
    if (op->kind != POWER_SYNC_END || (op->file != file && op->file != POWER_ALL))
        return 0;
    if (plant == PLANT_NO_DIRECTORY_SYNC && file == POWER_DIRECTORY)
        return 0;
    if ((plant == PLANT_NO_FILE_SYNC && end < disk->named_at[file]) ||
        (plant == PLANT_NO_BLOCK_SYNC && is_blocks(disk, file)) ||
        (plant == PLANT_NO_SECTION_SYNC && is_manifest(disk, file) && end > disk->named_at[file]) ||
        (plant == PLANT_NO_FLUSH && is_journal(disk, file)))
        return 0;
    if ((plant != PLANT_LATE_FLUSH || !is_journal(disk, file)) &&
        (plant != PLANT_LATE_BLOCKS || !is_blocks(disk, file)))
        return op->at;
    for (uint64_t i = op->at; i-- > 0;)
        if (disk->ops[i]->kind == POWER_SYNC_BEGIN && disk->ops[i]->file == file)
            return i;
    return 0;
}

/* Entries of `file` before this index are on the disk. */
static uint64_t durable(const struct disk *disk, uint32_t file, uint64_t cut, enum disk_plant plant)
{
    uint64_t most = 0;
    for (uint64_t i = 0; i < cut; i++) {
        uint64_t covered = disk->ops[i]->kind == POWER_SYNC_END ? covers(disk, i, file, plant) : 0;
        most = covered > most ? covered : most;
    }
    return most;
}

static bool is_content(const struct power_op *op)
{
    return op->kind == POWER_WRITE || op->kind == POWER_SIZE;
}

uint64_t disk_first_unsynced(const struct disk *disk, uint64_t cut)
{
    uint64_t first = cut;
    for (uint32_t file = POWER_FIRST_FILE; file < disk->log->files; file++) {
        if (!is_journal(disk, file))
            continue;
        uint64_t from = durable(disk, file, cut, PLANT_NOTHING), own = cut;
        for (uint64_t i = 0; i < cut; i++) {
            const struct power_op *op = disk->ops[i];
            if (op->file == file && (op->kind == POWER_UNLINK || op->kind == POWER_RENAME))
                own = cut; /* removed or set aside: something else has what was in it */
            else if (op->file == file && is_content(op) && i >= from && i < own)
                own = i;
        }
        first = own < first ? own : first;
    }
    return first;
}

static bool is_name(const struct power_op *op)
{
    return op->kind == POWER_CREATE || op->kind == POWER_RENAME || op->kind == POWER_UNLINK;
}

/* Near which entries cuts are drawn: any, syncs and names, names, syncs of the directory. */
static bool attracts(const struct power_op *op, uint64_t where)
{
    bool sync = op->kind == POWER_SYNC_BEGIN || op->kind == POWER_SYNC_END;
    return where == 0 || (where == 1 && (sync || is_name(op))) || (where == 2 && is_name(op)) ||
           (where == 3 && op->kind == POWER_SYNC_BEGIN && op->file < POWER_FIRST_FILE);
}

uint64_t disk_draw_cut(const struct disk *disk, uint64_t from, uint64_t *random)
{
    uint64_t cut = from + disk_draw(random, disk->count - from + 1), where = disk_draw(random, 4);
    uint64_t at = cut;
    while (at < disk->count && !attracts(disk->ops[at], where))
        at++;
    if (at < disk->count && where > 0)
        cut = where == 3 ? at + 1 : at - NEAR + disk_draw(random, 2 * NEAR + 1);
    return cut < from ? from : cut > disk->count ? disk->count : cut;
}

/* ---- Content --------------------------------------------------------------------------------- */

struct drawing {
    const struct disk *disk;
    const struct disk_state *state;
    uint64_t random;
    uint64_t pages;  /* unsynced pages so far */
    uint64_t missed; /* the one that DISK_ONE_PAGE leaves out, counted from 0 */
};

struct image {
    unsigned char *bytes;
    size_t size, room;
    unsigned *writes, *kept; /* of each page: unsynced writes, and how many of them are there */
};

/* How many of `n` unsynced changes of a page, or of a length, are there. */
static unsigned draw_kept(struct drawing *drawing, unsigned n, bool whole, bool length)
{
    unsigned some = (unsigned)disk_draw(&drawing->random, n + 1);
    switch (drawing->state->kind) {
    case DISK_NONE:
        return 0;
    case DISK_PAGES:
        return disk_draw(&drawing->random, 5) == 0                ? some
               : disk_draw(&drawing->random, length ? 8 : 2) == 0 ? 0
                                                                  : n;
    case DISK_ONE_PAGE:
        return length || drawing->pages++ != drawing->missed ? n : 0;
    case DISK_FILES:
        return whole ? n : 0;
    case DISK_SIZES:
        return length ? some : n;
    default:
        return n;
    }
}

/* The part of page `page` that the entry changes; false where it changes nothing of it. */
static bool part_of(size_t *from, size_t *to, const struct power_op *op, size_t page, size_t room)
{
    size_t first = op->at, last = op->kind == POWER_WRITE ? op->at + op->size : room;
    *from = first > page * PAGE ? first : page * PAGE;
    *to = last < (page + 1) * PAGE ? last : (page + 1) * PAGE;
    return *from < *to;
}

static void apply(struct image *image, const struct power_op *op, size_t page)
{
    size_t from, to;
    if (!part_of(&from, &to, op, page, image->room))
        return;
    if (op->kind == POWER_WRITE)
        memcpy(image->bytes + from, bytes_of(op) + (from - op->at), to - from);
    else
        memset(image->bytes + from, 0, to - from);
}

/* Length of the file after the entry. */
static size_t size_after(const struct power_op *op, size_t size)
{
    if (op->kind == POWER_SIZE)
        return op->at;
    return op->at + op->size > size ? op->at + op->size : size;
}

/* Calls `visit` for each entry of the file's content in [from, to). */
#define EACH_CONTENT(op, drawing, file, from, to) \
    for (uint64_t i_ = (from); i_ < (to); i_++)   \
        if ((op = (drawing)->disk->ops[i_])->file == (file) && is_content(op))

static void open_image(struct image *out, const struct drawing *drawing, uint32_t file)
{
    const struct power_op *op;
    size_t size = 0;
    *out = (struct image){0};
    EACH_CONTENT(op, drawing, file, 0, drawing->state->cut)
    {
        size = size_after(op, size);
        out->room = size > out->room ? size : out->room;
    }
    out->room = (out->room + PAGE) / PAGE * PAGE;
    out->bytes = calloc(1, out->room);
    out->writes = calloc(out->room / PAGE, sizeof *out->writes);
    out->kept = calloc(out->room / PAGE, sizeof *out->kept);
    ck_assert(out->bytes != NULL && out->writes != NULL && out->kept != NULL);
}

static void close_image(struct image *image)
{
    free(image->bytes);
    free(image->writes);
    free(image->kept);
}

/* Whether a write that a later sync than its own covers is there. */
static bool is_there(struct drawing *drawing, uint64_t at)
{
    const uint64_t doubted_at = drawing->disk->doubted_at[at];
    const enum disk_kind kind = drawing->state->kind;
    return doubted_at == 0 || doubted_at >= drawing->state->cut || kind == DISK_ALL ||
           (kind != DISK_NONE && disk_draw(&drawing->random, 2) == 0);
}

/* Applies what syncs cover, whole; then of the rest what is drawn, page by page. */
static void draw_content(struct image *image, struct drawing *drawing, uint32_t file)
{
    const struct power_op *op;
    const uint64_t cut = drawing->state->cut;
    const uint64_t synced = durable(drawing->disk, file, cut, drawing->state->plant);
    const size_t pages = image->room / PAGE;
    const bool whole = disk_draw(&drawing->random, 2) == 0;
    size_t from, to, size;
    unsigned lengths = 0;
    EACH_CONTENT(op, drawing, file, 0, synced)
    {
        const bool there = is_there(drawing, i_);
        image->size = size_after(op, image->size);
        for (size_t page = 0; page < pages && there; page++)
            apply(image, op, page);
    }
    size = image->size;
    EACH_CONTENT(op, drawing, file, synced, cut)
    {
        lengths += size_after(op, size) != size;
        size = size_after(op, size);
        for (size_t page = 0; page < pages; page++)
            image->writes[page] += part_of(&from, &to, op, page, image->room);
    }
    for (size_t page = 0; page < pages; page++)
        if (image->writes[page] > 0)
            image->kept[page] = draw_kept(drawing, image->writes[page], whole, false);
    lengths = draw_kept(drawing, lengths, whole, true);
    size = image->size;
    EACH_CONTENT(op, drawing, file, synced, cut)
    {
        if (size_after(op, size) != size && lengths > 0 && lengths-- > 0)
            image->size = size_after(op, size);
        size = size_after(op, size);
        for (size_t page = 0; page < pages; page++)
            if (part_of(&from, &to, op, page, image->room) && image->kept[page] > 0) {
                image->kept[page]--;
                apply(image, op, page);
            }
    }
}

/* ---- Names ----------------------------------------------------------------------------------- */

struct entry {
    const char *name;
    uint32_t file;
};

struct names {
    struct entry *entries; /* room for one of each file */
    size_t count;
};

static void remove_name(struct names *names, const char *name, uint32_t file)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->entries[i].name, name) == 0 && names->entries[i].file == file) {
            names->entries[i] = names->entries[--names->count];
            return;
        }
}

static void put_name(struct names *names, const char *name, uint32_t file)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->entries[i].name, name) == 0) {
            names->entries[i].file = file;
            return;
        }
    names->entries[names->count++] = (struct entry){name, file};
}

static bool keeps_name(struct drawing *drawing)
{
    switch (drawing->state->kind) {
    case DISK_NONE:
        return false;
    case DISK_PAGES:
    case DISK_FILES:
    case DISK_NAMES:
        return disk_draw(&drawing->random, 2) == 0;
    default:
        return true;
    }
}

static void apply_name(struct names *names, const struct power_op *op)
{
    const char *name = bytes_of(op);
    if (op->kind == POWER_CREATE)
        put_name(names, name, op->file);
    if (op->kind == POWER_UNLINK || op->kind == POWER_RENAME)
        remove_name(names, name, op->file);
    if (op->kind == POWER_RENAME)
        put_name(names, name + strlen(name) + 1, op->file);
}

static void draw_names(struct names *names, struct drawing *drawing)
{
    const struct disk *disk = drawing->disk;
    const struct disk_state *state = drawing->state;
    uint64_t synced = durable(disk, POWER_DIRECTORY, state->cut, state->plant);
    for (uint64_t i = 0; i < state->cut; i++) {
        const struct power_op *op = disk->ops[i];
        bool named =
            op->kind == POWER_CREATE || op->kind == POWER_RENAME || op->kind == POWER_UNLINK;
        if (named && (i < synced || keeps_name(drawing)))
            apply_name(names, op);
    }
    for (uint64_t i = 0; state->plant == PLANT_EARLY_UNLINK && i < disk->count; i++)
        if (disk->ops[i]->kind == POWER_UNLINK && disk->removed_at[i] < state->cut)
            apply_name(names, disk->ops[i]);
}

/* ---- The directory --------------------------------------------------------------------------- */

static void write_file(const struct image *image, const char *directory, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(image->bytes, 1, image->size, file), image->size);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(path, 0600), 0);
}

/* Counts the unsynced pages of all files, and draws the one that is to miss. */
static void draw_missed(struct drawing *drawing, const struct names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        struct image image;
        open_image(&image, drawing, names->entries[i].file);
        draw_content(&image, drawing, names->entries[i].file);
        close_image(&image);
    }
    drawing->missed = drawing->pages > 0 ? disk_draw(&drawing->random, drawing->pages) : 0;
    drawing->pages = 0;
}

void disk_build(const struct disk *disk, const struct disk_state *state, const char *path)
{
    struct drawing drawing = {disk, state, state->seed, 0, UINT64_MAX};
    struct names names = {calloc(disk->log->files, sizeof *names.entries), 0};
    ck_assert_ptr_nonnull(names.entries);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    draw_names(&names, &drawing);
    if (state->kind == DISK_ONE_PAGE)
        draw_missed(&drawing, &names);
    for (size_t i = 0; i < names.count; i++) {
        struct image image;
        open_image(&image, &drawing, names.entries[i].file);
        draw_content(&image, &drawing, names.entries[i].file);
        write_file(&image, path, names.entries[i].name);
        close_image(&image);
    }
    free(names.entries);
}
