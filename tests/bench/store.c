/* store.c: the files of a store, measured by turns beside the same transfers without one.
 *
 *   bench_store DIRECTORY MIB TURNS
 *
 * For two shapes of sessions, layers of blocks of 32 KiB and of 256 KiB, it writes MIB of blocks
 * and flushes them, beside one O_DIRECT write after another into a file that has its room; and
 * reads layers at random with 1, 4 and 8 threads, beside reads of as many bytes at random places of
 * that file.  Then it writes and reads manifests.  Figures are medians. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "samples.h"
#include "store/manifest.h"
#include "store/slots.h"

#define MAX_TURNS 99
#define MAX_THREADS 8
#define READS 256 /* of a thread and turn */
#define RAW "raw.bench"
#define MIB ((size_t)1 << 20)

static void stop(const char *what)
{
    perror(what);
    exit(1);
}

struct shape {
    const char *name;
    size_t block, layers, blocks; /* bytes; of a session; of a layer */
};

/* A layer's blocks as they were taken. */
struct run {
    struct srv_slot first;
    size_t count;
    uint64_t sums[64];
};

static int directory, raw;
static size_t total, turns;
static struct run *runs;
static size_t num_runs;

static double seconds_since(uint64_t start)
{
    return (double)(srv_now_ns() - start) / (double)SRV_S_NS;
}

static void *aligned(size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, SRV_SLOT_UNIT, bytes) != 0)
        stop("memory");
    memset(memory, 0x5a, bytes);
    return memory;
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Writes `total` bytes of sessions to slots, layer by layer; returns MiB a second. */
static double write_slots(struct srv_slots *slots, const struct shape *shape, unsigned char *block)
{
    const uint64_t start = srv_now_ns();
    size_t written = 0;
    num_runs = 0;
    while (written < total)
        for (size_t left = shape->blocks; left > 0;) {
            struct run *run = &runs[num_runs++];
            run->count = srv_slots_take(&run->first, slots, shape->block, left);
            if (run->count == 0)
                stop("slots");
            for (size_t i = 0; i < run->count; i++) {
                block[0] = (unsigned char)i;
                run->sums[i] =
                    srv_slots_write(slots, (struct srv_slot){run->first.file, run->first.index + i},
                                    block, shape->block);
            }
            left -= run->count;
            written += run->count * shape->block;
        }
    if (!srv_slots_sync(slots))
        stop("slots");
    return (double)written / (double)MIB / seconds_since(start);
}

static double write_raw(const unsigned char *bytes)
{
    const uint64_t start = srv_now_ns();
    for (size_t at = 0; at < total; at += MIB)
        if (pwrite(raw, bytes, MIB, (off_t)at) != (ssize_t)MIB)
            stop(RAW);
    if (fdatasync(raw) != 0)
        stop(RAW);
    return (double)total / (double)MIB / seconds_since(start);
}

/* ---- Reading --------------------------------------------------------------------------------- */

struct reader {
    struct srv_slots *slots; /* NULL: the raw file */
    size_t block, bytes;     /* of a transfer */
    unsigned seed;
    size_t read;
};

static void *read_some(void *argument)
{
    struct reader *reader = argument;
    struct srv_slot_reader memory = {0};
    unsigned char *buffer = aligned(reader->bytes);
    for (size_t i = 0; i < READS; i++) {
        const size_t which = (size_t)rand_r(&reader->seed);
        if (reader->slots != NULL) {
            const struct run *run = &runs[which % num_runs];
            if (srv_slots_read(&memory, reader->slots, run->first, run->sums, run->count,
                               reader->block) != run->count)
                stop("a block is not what was written");
            reader->read += run->count * reader->block;
        } else {
            const off_t at = (off_t)(which % (total / reader->bytes) * reader->bytes);
            if (pread(raw, buffer, reader->bytes, at) != (ssize_t)reader->bytes)
                stop(RAW);
            reader->read += reader->bytes;
        }
    }
    srv_slot_reader_fini(&memory);
    free(buffer);
    return NULL;
}

static double read_with(size_t threads, struct srv_slots *slots, const struct shape *shape)
{
    pthread_t started[MAX_THREADS];
    struct reader readers[MAX_THREADS];
    size_t read = 0;
    const uint64_t start = srv_now_ns();
    for (size_t i = 0; i < threads; i++) {
        readers[i] = (struct reader){.slots = slots,
                                     .block = shape->block,
                                     .bytes = shape->block * shape->blocks,
                                     .seed = (unsigned)(i + start)};
        if (pthread_create(&started[i], NULL, read_some, &readers[i]) != 0)
            stop("threads");
    }
    for (size_t i = 0; i < threads; i++) {
        pthread_join(started[i], NULL);
        read += readers[i].read;
    }
    return (double)read / (double)MIB / seconds_since(start);
}

static void measure(const struct shape *shape)
{
    static double own[4][MAX_TURNS], bare[4][MAX_TURNS];
    static const size_t threads[] = {1, 4, 8};
    unsigned char *bytes = aligned(MIB);
    for (size_t turn = 0; turn < turns; turn++) {
        struct srv_slots *slots = srv_slots_new(directory, 1, 0);
        if (slots == NULL)
            stop("memory");
        own[0][turn] = write_slots(slots, shape, bytes);
        bare[0][turn] = write_raw(bytes);
        for (size_t i = 0; i < 3; i++) {
            own[1 + i][turn] = read_with(threads[i], slots, shape);
            bare[1 + i][turn] = read_with(threads[i], NULL, shape);
        }
        srv_slots_free(slots);
        char name[SRV_SLOT_FILE_NAME];
        srv_slot_file_name(name, 1, shape->block);
        unlinkat(directory, name, 0);
    }
    for (size_t i = 0; i < 4; i++) {
        const double mine = bench_median(own[i], turns), plain = bench_median(bare[i], turns);
        printf("%-28s %-18s %8.0f MiB/s  plain %8.0f  %.2f\n", shape->name,
               i == 0   ? "write and flush"
               : i == 1 ? "read, 1 thread"
               : i == 2 ? "read, 4 threads"
                        : "read, 8 threads",
               mine, plain, mine / plain);
    }
    free(bytes);
}

/* ---- Manifests ------------------------------------------------------------------------------- */

/* Says `count` sessions, each of so many layers and blocks, of which with `one` only the last block
 * of each layer is new. */
static void say(struct srv_manifest *manifest, uint64_t generation, size_t count, uint32_t layers,
                uint32_t blocks, bool one)
{
    const struct srv_record_create options = {.id = "session", .model = "model"};
    const uint32_t added = one ? 1 : blocks;
    struct srv_manifest_layer *said = calloc(layers, sizeof *said);
    struct srv_block_place *places = calloc((size_t)layers * added, sizeof *places);
    struct srv_description session = {
        .options = one ? NULL : &options, .layers = said, .blocks = places};
    if (said == NULL || places == NULL)
        stop("memory");
    for (uint32_t i = 0; i < layers; i++)
        said[i] = (struct srv_manifest_layer){
            .length = blocks * 64, .rows = 1, .kept = one ? blocks - 1 : 0, .added = added};
    for (size_t i = 0; i < (size_t)layers * added; i++)
        places[i] = (struct srv_block_place){1, i, i, 64};
    session.facts.num_layers = layers;
    session.facts.num_blocks = layers * added;
    srv_manifest_begin(manifest, directory, generation);
    for (session.epoch = 1; session.epoch <= count; session.epoch++)
        srv_manifest_add(manifest, &session);
    if (!srv_manifest_end(manifest, 1, NULL, 0))
        stop("manifest");
    free(said);
    free(places);
}

static void measure_manifest(const char *name, size_t count, uint32_t layers, uint32_t blocks)
{
    static double times[3][MAX_TURNS];
    uint64_t whole = 0, more = 0;
    for (size_t turn = 0; turn < turns; turn++) {
        char file[SRV_MANIFEST_NAME];
        struct srv_manifest manifest = {0};
        struct srv_manifest_state state;
        uint64_t start = srv_now_ns();
        say(&manifest, 1, count, layers, blocks, false);
        times[0][turn] = seconds_since(start) * 1e3;
        whole = manifest.copies[0].length;
        start = srv_now_ns();
        say(&manifest, 2, 1, layers, blocks, true);
        times[1][turn] = seconds_since(start) * 1e3;
        more = manifest.copies[0].length - whole;
        start = srv_now_ns();
        if (srv_manifest_read(&state, directory, 1, false) != SRV_MANIFEST_READ ||
            state.sections != 2)
            stop("manifest");
        times[2][turn] = seconds_since(start) * 1e3;
        srv_manifest_state_fini(&state);
        srv_manifest_fini(&manifest);
        for (size_t i = 0; i < 2; i++) {
            srv_manifest_name(file, 1, i);
            unlinkat(directory, file, 0);
        }
    }
    printf("%-28s first section %llu bytes in %.1f ms; one token more %llu bytes in %.1f ms; read "
           "in %.1f ms\n",
           name, (unsigned long long)whole, bench_median(times[0], turns), (unsigned long long)more,
           bench_median(times[1], turns), bench_median(times[2], turns));
}

int main(int count, char **arguments)
{
    static const struct shape shapes[] = {{"4 layers of 32 KiB blocks", 32768, 4, 8},
                                          {"32 layers of 256 KiB blocks", 262144, 32, 4}};
    if (count != 4) {
        fprintf(stderr, "usage: bench_store DIRECTORY MIB TURNS\n");
        return 2;
    }
    total = strtoul(arguments[2], NULL, 10) * MIB;
    turns = strtoul(arguments[3], NULL, 10);
    if (turns == 0 || turns > MAX_TURNS || total == 0)
        return 2;
    directory = open(arguments[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    raw =
        directory >= 0 ? openat(directory, RAW, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600) : -1;
    runs = calloc(total / 32768 + 64, sizeof *runs);
    if (raw < 0 || runs == NULL || fallocate(raw, 0, 0, (off_t)total) != 0)
        stop(arguments[1]);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        measure(&shapes[i]);
    measure_manifest("32 layers of 32k tokens", 1, 32, 512);
    measure_manifest("100,000 sessions of 4 layers", 100000, 4, 6);
    unlinkat(directory, RAW, 0);
    return 0;
}
