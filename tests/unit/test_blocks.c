/* test_blocks.c: caches through slots and a manifest: what is written is what is new, and a start
 * has the bits of the last durable moment, whatever was forked, truncated, freed or failed. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk.h"
#include "rng.h"
#include "scratch.h"
#include "store/blocks.h"
#include "suites.h"

#define GROUPS 2
#define WIDTH 4
#define LAYERS 4 /* full, with a window, and two that read the first and the second */
#define SESSIONS 8
#define BLOCK ((size_t)64 * GROUPS * 2 * WIDTH * sizeof(float))

static char path[SCRATCH_PATH];
static int directory;
static struct attn_model *model;
static struct attn_cache_pool *pool;
static struct attn_error error;
static struct rng rng;
static struct srv_slots *slots;
static struct srv_manifest manifest;
static uint64_t moment, told; /* the newest, and the newest that counts */
static bool no_memory;        /* for a section, likewise */
static bool no_section;       /* the disk fails once the blocks are there */

static void drop(void *context, const struct attn_stored *place)
{
    (void)context;
    srv_slots_drop(slots, (struct srv_slot){place->file, place->slot});
}

static void set_up_dtype(enum attn_dtype kv_dtype)
{
    static const char config[] =
        "{\"hidden_size\":16,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
        "\"num_hidden_layers\":4,\"sliding_window\":8,\"num_kv_shared_layers\":2,"
        "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\","
        "\"sliding_attention\"]}";
    const struct attn_model_options options = {.kv_dtype = kv_dtype};
    disk_reset();
    scratch_make(path);
    directory = open(path, O_RDONLY | O_DIRECTORY);
    ck_assert_int_eq(attn_model_open_random(&model, config, strlen(config), &options, &error),
                     ATTN_OK);
    ck_assert_int_eq(attn_model_load(model, &error), ATTN_OK);
    ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)64 << 20), ATTN_OK);
    attn_cache_pool_set_dropped(pool, drop, NULL);
    slots = srv_slots_new(directory, 1, 0);
    manifest = (struct srv_manifest){0};
    rng = rng_seeded(39);
    moment = told = 0;
    no_section = no_memory = false;
}

static void tear_down(void)
{
    disk_reset();
    ck_assert_uint_eq(attn_cache_pool_used(pool), 0);
    attn_cache_pool_free(pool);
    attn_model_close(model);
    srv_manifest_fini(&manifest);
    srv_slots_free(slots);
    close(directory);
    scratch_remove(path);
}

/* ---- Sessions -------------------------------------------------------------------------------- */

static struct attn_cache *new_cache(void)
{
    struct attn_cache *cache;
    ck_assert_int_eq(attn_cache_new(&cache, pool, model, 1000, &error), ATTN_OK);
    return cache;
}

/* Appends tokens to each layer, as a step does. */
static void append(struct attn_cache *cache, size_t count)
{
    for (size_t i = 0; i < LAYERS; i++) {
        const size_t position = attn_cache_length(cache, i);
        float *key = rng_floats(&rng, GROUPS * count * WIDTH, 3);
        float *value = rng_floats(&rng, GROUPS * count * WIDTH, 3);
        ck_assert_int_eq(attn_cache_write(cache, i, count, key, value, &error), ATTN_OK);
        attn_cache_forget(cache, i, position);
        free(key);
        free(value);
    }
}

/* The numbers of a cache, which do not hold its blocks. */
struct copy {
    bool is_there;
    size_t length[LAYERS], first[LAYERS];
    float *numbers[LAYERS];
};

static void free_copy(struct copy *copy)
{
    for (size_t i = 0; i < LAYERS; i++)
        free(copy->numbers[i]);
    *copy = (struct copy){0};
}

static void copy_cache(struct copy *out, const struct attn_cache *cache)
{
    *out = (struct copy){.is_there = cache != NULL};
    for (size_t i = 0; i < LAYERS && cache != NULL; i++) {
        const size_t count = attn_cache_length(cache, i), part = GROUPS * count * WIDTH;
        out->length[i] = count;
        out->first[i] = attn_cache_first(cache, i);
        out->numbers[i] = calloc(2 * part + 1, sizeof(float));
        attn_cache_read(out->numbers[i], out->numbers[i] + part, cache, i, count);
    }
}

static void expect_same(const struct copy *expected, const struct attn_cache *cache)
{
    struct copy found;
    copy_cache(&found, cache);
    for (size_t i = 0; i < LAYERS; i++) {
        ck_assert_uint_eq(found.length[i], expected->length[i]);
        ck_assert_uint_eq(found.first[i], expected->first[i]);
        ck_assert_mem_eq(found.numbers[i], expected->numbers[i],
                         2 * GROUPS * found.length[i] * WIDTH * sizeof(float));
    }
    free_copy(&found);
}

/* ---- Moments --------------------------------------------------------------------------------- */

/* All sessions of a moment; NULL: none.  The epoch of caches[i] is i + 1. */
struct world {
    struct attn_cache *caches[SESSIONS];
    bool is_new[SESSIONS], changed[SESSIONS];
};

static void add(const struct srv_block_writer *writer, const struct attn_cache *frozen, size_t i,
                bool whole)
{
    const struct srv_record_create options = {.id = "a"};
    struct srv_manifest_layer layers[LAYERS] = {0};
    struct srv_block_place *places =
        malloc((srv_blocks_count(frozen, LAYERS) + 1) * sizeof *places);
    struct srv_description said = {.epoch = i + 1,
                                   .options = whole ? &options : NULL,
                                   .layers = layers,
                                   .blocks = places,
                                   .facts.num_layers = LAYERS};
    said.facts.num_blocks =
        (uint32_t)srv_blocks_list(layers, places, writer, frozen, LAYERS, whole);
    srv_manifest_add(&manifest, &said);
    free(places);
}

/* Makes a moment of the sessions; *frozen gets copies of them.  Returns the bytes that were
 * written; SIZE_MAX where the moment failed. */
static size_t make_moment(struct world *world, struct attn_cache *frozen[SESSIONS])
{
    struct srv_block_writer writer = {.slots = slots, .moment = ++moment, .told = told};
    uint64_t ended[SESSIONS];
    size_t num_ended = 0;
    bool written = true;
    srv_slots_begin_moment(slots);
    const bool whole = srv_manifest_is_due(&manifest);
    for (size_t i = 0; i < SESSIONS; i++) {
        frozen[i] = NULL;
        if (world->caches[i] != NULL)
            ck_assert_int_eq(attn_cache_freeze(&frozen[i], world->caches[i], &error), ATTN_OK);
    }
    for (size_t i = 0; i < SESSIONS && written; i++)
        if (frozen[i] != NULL && (whole || world->changed[i]))
            written = srv_blocks_write(&writer, frozen[i], LAYERS);
    written = srv_blocks_end(&writer, written);
    atomic_store(&disk.no_flush, atomic_load(&disk.no_flush) || no_section);
    if (written && no_memory)
        return SIZE_MAX;
    if (written) {
        srv_manifest_begin(&manifest, directory, moment);
        for (size_t i = 0; i < SESSIONS; i++) {
            if (frozen[i] != NULL && (whole || world->changed[i]))
                add(&writer, frozen[i], i, whole || world->is_new[i]);
            else if (frozen[i] == NULL)
                ended[num_ended++] = i + 1;
        }
        written = srv_manifest_end(&manifest, moment, ended, num_ended);
    }
    if (!written)
        return SIZE_MAX;
    told = moment;
    srv_slots_end_moment(slots);
    (void)srv_slots_punch(slots, SIZE_MAX);
    memset(world->changed, 0, sizeof world->changed);
    memset(world->is_new, 0, sizeof world->is_new);
    return (size_t)writer.bytes;
}

static void free_all(struct attn_cache *caches[SESSIONS])
{
    for (size_t i = 0; i < SESSIONS; i++) {
        attn_cache_free(caches[i]);
        caches[i] = NULL;
    }
}

/* Restores the sessions from the files as a start does. */
static void restore(struct attn_cache *out[SESSIONS])
{
    struct srv_manifest_state state;
    struct srv_block_map map = {0};
    struct srv_slot_reader reader = {0};
    ck_assert_int_eq(srv_manifest_read(&state, directory, manifest.named, false),
                     SRV_MANIFEST_READ);
    srv_slots_free(slots);
    slots = srv_slots_new(directory, moment + 1, 0);
    for (size_t i = 0; i < SESSIONS; i++) {
        const struct srv_manifest_entry *entry = srv_manifest_find(&state, i + 1);
        out[i] = NULL;
        if (entry == NULL || entry->options == NULL)
            continue;
        out[i] = new_cache();
        ck_assert_msg(srv_blocks_restore(out[i], &map, slots, entry, &error) == ATTN_OK, "%s",
                      error.message);
    }
    for (size_t i = 0; i < SESSIONS; i++)
        for (size_t layer = 0; layer < LAYERS && out[i] != NULL; layer++) {
            ck_assert_int_eq(attn_cache_admit(out[i], layer, &error), ATTN_OK);
            ck_assert_int_eq(srv_blocks_fill(out[i], model, layer, slots, &reader), ATTN_OK);
        }
    srv_block_map_fini(&map);
    srv_slot_reader_fini(&reader);
    srv_manifest_state_fini(&state);
}

/* Overwrites every slot that is free: nothing that a start needs stands there. */
static void overwrite_free(void)
{
    static struct srv_slot taken[4096];
    unsigned char nothing[BLOCK] = {0};
    struct srv_slots_figures figures;
    size_t count = 0;
    srv_slots_describe(&figures, slots);
    for (size_t left = (figures.held - figures.used) / BLOCK; left > 0; left--, count++) {
        ck_assert_uint_lt(count, 4096);
        ck_assert_uint_eq(srv_slots_take(&taken[count], slots, BLOCK, 1), 1);
        (void)srv_slots_write(slots, taken[count], nothing, BLOCK);
    }
    ck_assert(srv_slots_sync(slots));
    while (count > 0)
        srv_slots_release(slots, taken[--count]);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void work(struct world *world)
{
    const size_t i = rng_below(&rng, SESSIONS), from = rng_below(&rng, SESSIONS);
    const unsigned what = rng_below(&rng, 8);
    if (world->caches[i] == NULL) {
        if (what < 4 || world->caches[from] == NULL)
            world->caches[i] = new_cache();
        else
            ck_assert_int_eq(attn_cache_fork(&world->caches[i], world->caches[from],
                                             attn_cache_length(world->caches[from], 0), &error),
                             ATTN_OK);
        world->is_new[i] = true;
    } else if (what == 0) {
        attn_cache_free(world->caches[i]);
        world->caches[i] = NULL;
        return;
    } else if (what == 1) {
        const size_t length = attn_cache_length(world->caches[i], 0);
        (void)attn_cache_truncate(world->caches[i], rng_below(&rng, (unsigned)length + 1));
    } else if (attn_cache_length(world->caches[i], 0) < 800) {
        append(world->caches[i], 1 + rng_below(&rng, 90));
    }
    world->changed[i] = true;
}

START_TEST(test_blocks_a_start_has_the_last_durable_moment)
{
    struct world world = {0};
    struct attn_cache *frozen[SESSIONS], *restored[SESSIONS];
    struct copy durable[SESSIONS] = {0};
    size_t failed = 0;
    set_up_dtype((enum attn_dtype)_i);
    for (size_t turn = 0; turn < 40; turn++) {
        for (size_t n = 0; n < 6; n++)
            work(&world);
        const size_t fault = turn / 3 % 2 > 0 ? 1 + turn % 3 : 0; /* three moments, then three */
        no_section = fault == 1 || turn % 4 == 3;
        atomic_store(&disk.full, fault == 2);
        atomic_store(&disk.no_flush, fault == 3);
        const bool made = make_moment(&world, frozen) != SIZE_MAX;
        disk_reset();
        failed += !made;
        for (size_t i = 0; i < SESSIONS && made; i++) {
            free_copy(&durable[i]);
            copy_cache(&durable[i], frozen[i]);
        }
        free_all(frozen);
        overwrite_free();
        if (turn % 3 != 2)
            continue;
        struct srv_slots *own = slots; /* a start of another process */
        attn_cache_pool_set_dropped(pool, NULL, NULL);
        slots = srv_slots_new(directory, moment + 1, 0);
        restore(restored);
        for (size_t i = 0; i < SESSIONS; i++) {
            ck_assert_int_eq(restored[i] != NULL, durable[i].is_there);
            if (restored[i] != NULL)
                expect_same(&durable[i], restored[i]);
        }
        free_all(restored);
        srv_slots_free(slots);
        slots = own;
        attn_cache_pool_set_dropped(pool, drop, NULL);
    }
    ck_assert_uint_ge(failed, 12);
    for (size_t i = 0; i < SESSIONS; i++)
        free_copy(&durable[i]);
    free_all(world.caches);
    tear_down();
}
END_TEST

START_TEST(test_blocks_a_failed_moment_leaves_no_slots)
{
    struct world world = {0};
    struct attn_cache *frozen[SESSIONS];
    struct srv_slots_figures before, after;
    set_up_dtype(ATTN_F32);
    world.caches[0] = new_cache();
    world.is_new[0] = world.changed[0] = true;
    append(world.caches[0], 100);
    ck_assert_uint_ne(make_moment(&world, frozen), SIZE_MAX);
    free_all(frozen);
    append(world.caches[0], 100);
    world.changed[0] = true;
    srv_slots_describe(&before, slots);
    atomic_store(&disk.no_flush, true);
    ck_assert_uint_eq(make_moment(&world, frozen), SIZE_MAX);
    free_all(frozen);
    srv_slots_describe(&after, slots);
    ck_assert_uint_eq(after.used, before.used);
    ck_assert_uint_eq(after.waiting, before.waiting);
    atomic_store(&disk.no_flush, false);
    const size_t written = make_moment(&world, frozen);
    ck_assert_uint_ne(written, SIZE_MAX);
    ck_assert_uint_gt(written, 0);
    free_all(frozen);
    free_all(world.caches);
    tear_down();
}
END_TEST

/* The manifest is as it was, and the next section goes to the same file. */
START_TEST(test_blocks_of_a_moment_that_had_no_section_are_said_by_the_next)
{
    struct world world = {0};
    struct attn_cache *frozen[SESSIONS];
    struct copy durable;
    set_up_dtype(ATTN_F32);
    world.caches[0] = new_cache();
    world.is_new[0] = world.changed[0] = true;
    append(world.caches[0], 128);
    ck_assert_uint_ne(make_moment(&world, frozen), SIZE_MAX);
    free_all(frozen);
    append(world.caches[0], 100);
    world.changed[0] = no_memory = true;
    ck_assert_uint_eq(make_moment(&world, frozen), SIZE_MAX);
    free_all(frozen);
    no_memory = false;
    ck_assert_uint_eq(make_moment(&world, frozen), 0);
    free_all(frozen);
    ck_assert_uint_eq(manifest.named, 1);
    copy_cache(&durable, world.caches[0]);
    free_all(world.caches);
    attn_cache_pool_set_dropped(pool, NULL, NULL);
    restore(world.caches);
    ck_assert_ptr_nonnull(world.caches[0]);
    expect_same(&durable, world.caches[0]);
    free_copy(&durable);
    free_all(world.caches);
    tear_down();
}
END_TEST

START_TEST(test_blocks_only_what_is_new_is_written)
{
    struct world world = {0};
    struct attn_cache *frozen[SESSIONS];
    struct srv_slots_figures figures;
    set_up_dtype(ATTN_F32);
    world.caches[0] = new_cache();
    world.is_new[0] = world.changed[0] = true;
    append(world.caches[0], 640);
    ck_assert_uint_eq(make_moment(&world, frozen), 20 * BLOCK);
    free_all(frozen);
    ck_assert_uint_eq(make_moment(&world, frozen), 0);
    free_all(frozen);
    append(world.caches[0], 1); /* one block a layer */
    world.changed[0] = true;
    ck_assert_uint_eq(make_moment(&world, frozen), 2 * BLOCK);
    free_all(frozen);
    const size_t before = manifest.copies[0].length;
    for (size_t i = 1; i < SESSIONS; i++) {
        ck_assert_int_eq(attn_cache_fork(&world.caches[i], world.caches[0], 641, &error), ATTN_OK);
        world.is_new[i] = world.changed[i] = true;
    }
    ck_assert_uint_eq(make_moment(&world, frozen), 0); /* forks share */
    ck_assert_uint_gt(manifest.copies[0].length, before);
    free_all(frozen);
    append(world.caches[3], 1);
    world.changed[3] = true;
    ck_assert_uint_eq(make_moment(&world, frozen), 2 * BLOCK);
    free_all(frozen);
    free_all(world.caches);
    ck_assert_uint_eq(make_moment(&world, frozen), 0);
    srv_slots_describe(&figures, slots);
    ck_assert_uint_eq(figures.used, 0);
    tear_down();
}
END_TEST

START_TEST(test_blocks_a_start_shares_what_was_shared)
{
    struct world world = {0};
    struct attn_cache *frozen[SESSIONS];
    set_up_dtype(ATTN_BF16);
    world.caches[0] = new_cache();
    append(world.caches[0], 300);
    for (size_t i = 1; i < SESSIONS; i++)
        ck_assert_int_eq(attn_cache_fork(&world.caches[i], world.caches[0], 300, &error), ATTN_OK);
    append(world.caches[7], 5);
    memset(world.is_new, 1, sizeof world.is_new);
    memset(world.changed, 1, sizeof world.changed);
    ck_assert_uint_ne(make_moment(&world, frozen), SIZE_MAX);
    free_all(frozen);
    const size_t used = attn_cache_pool_used(pool);
    free_all(world.caches);
    ck_assert_uint_eq(attn_cache_pool_used(pool), 0);
    attn_cache_pool_set_dropped(pool, NULL, NULL);
    restore(world.caches);
    attn_cache_pool_set_dropped(pool, drop, NULL);
    ck_assert_uint_eq(attn_cache_pool_used(pool), used);
    ck_assert_uint_eq(make_moment(&world, frozen), 0); /* all of it is where it was */
    free_all(frozen);
    free_all(world.caches);
    tear_down();
}
END_TEST

/* Whatever was forked, cut short and grown: sessions take as much of a pool as before, the same
 * bits are there, and each goes on for itself. */
START_TEST(test_blocks_any_family_of_forks_fits_again_where_it_did)
{
    struct world world = {0};
    struct attn_cache *frozen[SESSIONS];
    struct copy durable[SESSIONS] = {0};
    set_up_dtype((enum attn_dtype)(_i % ATTN_NUM_NUMBER_FORMATS));
    rng = rng_seeded(77 + (uint64_t)_i);
    for (size_t n = 0; n < 120; n++) {
        work(&world);
        if (n % 40 != 39)
            continue;
        ck_assert_uint_ne(make_moment(&world, frozen), SIZE_MAX);
        free_all(frozen);
    }
    for (size_t i = 0; i < SESSIONS; i++)
        copy_cache(&durable[i], world.caches[i]);
    const size_t used = attn_cache_pool_used(pool);
    free_all(world.caches);
    attn_cache_pool_free(pool);
    ck_assert_int_eq(attn_cache_pool_new(&pool, used), ATTN_OK);
    restore(world.caches);
    ck_assert_uint_eq(attn_cache_pool_used(pool), used);
    for (size_t last = 0; last < SESSIONS; last++) { /* each goes back a token */
        for (size_t i = 0; i < SESSIONS; i++) {
            ck_assert_int_eq(world.caches[i] != NULL, durable[i].is_there);
            if (world.caches[i] != NULL && i >= last)
                expect_same(&durable[i], world.caches[i]);
        }
        free_copy(&durable[last]);
        durable[last].is_there = world.caches[last] != NULL;
        const size_t length =
            world.caches[last] != NULL ? attn_cache_length(world.caches[last], 0) : 0;
        if (length > 0 && attn_cache_truncate(world.caches[last], length - 1) &&
            attn_cache_pool_used(pool) + 8 * BLOCK < used)
            append(world.caches[last], 1);
    }
    for (size_t i = 0; i < SESSIONS; i++)
        free_copy(&durable[i]);
    free_all(world.caches);
    tear_down();
}
END_TEST

START_TEST(test_blocks_are_verified_once_for_all_sessions_that_share_them)
{
    struct world world = {0};
    struct attn_cache *frozen[SESSIONS];
    struct srv_manifest_state state;
    struct srv_block_map map = {0};
    struct srv_slot_reader reader = {0};
    char name[SRV_SLOT_FILE_NAME], file[512];
    set_up_dtype(ATTN_F32);
    world.caches[0] = new_cache();
    world.caches[1] = new_cache();
    append(world.caches[0], 300);
    append(world.caches[1], 100);
    ck_assert_int_eq(attn_cache_fork(&world.caches[2], world.caches[0], 300, &error), ATTN_OK);
    memset(world.is_new, 1, sizeof world.is_new);
    memset(world.changed, 1, sizeof world.changed);
    ck_assert_uint_ne(make_moment(&world, frozen), SIZE_MAX);
    free_all(frozen);
    ck_assert_int_eq(srv_manifest_read(&state, directory, manifest.named, false),
                     SRV_MANIFEST_READ);
    const struct srv_manifest_entry *entries[] = {
        srv_manifest_find(&state, 1), srv_manifest_find(&state, 2), srv_manifest_find(&state, 3)};
    atomic_store(&disk.unreadable, EIO);
    ck_assert_int_eq(srv_blocks_verify(&map, slots, &reader, entries[0]), ATTN_IO);
    ck_assert_int_eq(errno, EIO);
    atomic_store(&disk.unreadable, 0);
    srv_slot_file_name(name, 1, BLOCK);
    snprintf(file, sizeof file, "%s/%s", path, name);
    const int fd = open(file, O_RDWR);
    const off_t at = (off_t)(entries[0]->blocks[2].slot * BLOCK + 100);
    if (_i == 1)
        ck_assert_int_eq(pwrite(fd, "damage", 6, at), 6);
    const enum attn_status expected = _i == 0 ? ATTN_OK : ATTN_MALFORMED;
    ck_assert_int_eq(srv_blocks_verify(&map, slots, &reader, entries[0]), expected);
    ck_assert_int_eq(srv_blocks_verify(&map, slots, &reader, entries[1]), ATTN_OK);
    atomic_store(&disk.unreadable, EIO); /* the others' are known */
    ck_assert_int_eq(srv_blocks_verify(&map, slots, &reader, entries[2]), expected);
    ck_assert_int_eq(srv_blocks_verify(&map, slots, &reader, entries[1]), ATTN_OK);
    disk_reset();
    srv_block_map_fini(&map);
    srv_slots_free(slots); /* a start over a file that has fewer slots */
    ck_assert_int_eq(ftruncate(fd, 0), 0);
    close(fd);
    attn_cache_pool_set_dropped(pool, NULL, NULL);
    slots = srv_slots_new(directory, 2, 0);
    ck_assert_int_eq(srv_blocks_verify(&map, slots, &reader, entries[1]), ATTN_MALFORMED);
    free_all(world.caches);
    srv_block_map_fini(&map);
    srv_slot_reader_fini(&reader);
    srv_manifest_state_fini(&state);
    tear_down();
}
END_TEST

START_TEST(test_blocks_damage_is_told_from_a_disk_that_cannot_be_read)
{
    struct world world = {0};
    struct attn_cache *frozen[SESSIONS], *cache = NULL;
    struct srv_manifest_state state;
    struct srv_block_map map = {0};
    struct srv_slot_reader reader = {0};
    char name[SRV_SLOT_FILE_NAME], file[512];
    set_up_dtype(ATTN_F32);
    world.caches[0] = new_cache();
    world.is_new[0] = world.changed[0] = true;
    append(world.caches[0], 300);
    ck_assert_uint_ne(make_moment(&world, frozen), SIZE_MAX);
    free_all(frozen);
    ck_assert_int_eq(srv_manifest_read(&state, directory, manifest.named, false),
                     SRV_MANIFEST_READ);
    const struct srv_manifest_entry *entry = srv_manifest_find(&state, 1);
    cache = new_cache();
    attn_cache_pool_set_dropped(pool, NULL, NULL);
    ck_assert_int_eq(srv_blocks_restore(cache, &map, slots, entry, &error), ATTN_OK);
    ck_assert_int_eq(attn_cache_admit(cache, 0, &error), ATTN_OK);
    ck_assert_int_eq(attn_cache_admit(cache, 1, &error), ATTN_OK);
    atomic_store(&disk.unreadable, EIO);
    ck_assert_int_eq(srv_blocks_fill(cache, model, 0, slots, &reader), ATTN_IO);
    atomic_store(&disk.unreadable, 0);
    srv_slot_file_name(name, 1, BLOCK);
    snprintf(file, sizeof file, "%s/%s", path, name);
    const int fd = open(file, O_RDWR);
    ck_assert_int_eq(pwrite(fd, "damage", 6, (off_t)(entry->blocks[2].slot * BLOCK + 100)), 6);
    ck_assert_int_eq(srv_blocks_fill(cache, model, 0, slots, &reader), ATTN_MALFORMED);
    ck_assert_int_eq(srv_blocks_fill(cache, model, 1, slots, &reader), ATTN_OK);
    attn_cache_free(cache);
    srv_block_map_fini(&map);
    ck_assert_int_eq(ftruncate(fd, 0), 0);
    close(fd);
    srv_slots_free(slots); /* a start over a file that lost its slots */
    slots = srv_slots_new(directory, 2, 0);
    cache = new_cache();
    ck_assert_int_eq(srv_blocks_restore(cache, &map, slots, entry, &error), ATTN_MALFORMED);
    ck_assert_str_eq(error.message, "a slot is not there");
    attn_cache_free(cache);
    attn_cache_free(world.caches[0]);
    srv_block_map_fini(&map);
    srv_slot_reader_fini(&reader);
    srv_manifest_state_fini(&state);
    tear_down();
}
END_TEST

Suite *suite_blocks(void)
{
    Suite *suite = suite_create("blocks");
    TCase *tests = tcase_create("blocks");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, test_blocks_a_start_has_the_last_durable_moment, 0,
                        ATTN_NUM_NUMBER_FORMATS);
    tcase_add_test(tests, test_blocks_a_failed_moment_leaves_no_slots);
    tcase_add_test(tests, test_blocks_of_a_moment_that_had_no_section_are_said_by_the_next);
    tcase_add_test(tests, test_blocks_only_what_is_new_is_written);
    tcase_add_test(tests, test_blocks_a_start_shares_what_was_shared);
    tcase_add_loop_test(tests, test_blocks_any_family_of_forks_fits_again_where_it_did, 0, 24);
    tcase_add_loop_test(tests, test_blocks_are_verified_once_for_all_sessions_that_share_them, 0,
                        2);
    tcase_add_test(tests, test_blocks_damage_is_told_from_a_disk_that_cannot_be_read);
    suite_add_tcase(suite, tests);
    return suite;
}
