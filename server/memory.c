/* memory.c: the terms of the daemon's memory.
 *
 * Weights are read before there are requests, and sessions restored before there are any too, so of
 * those phases only what passes the later ones' memory is added.  Address space (RLIMIT_AS) is
 * reserved beyond what is touched: stacks and arenas of the allocator are counted whole there. */
#include "memory.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>

#include "attn_limits.h"
#include "base/buffer.h"
#include "config/config.h"
#include "http/http.h"
#include "schedule/steps.h"
#include "session/models.h"
#include "session/session.h"
#include "store/sharing.h"
#include "store/store.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

#define PROGRAM (24 * MIB)          /* code, libraries, the configuration, tables */
#define THREAD (512 * KIB)          /* what one uses of its stack and its arena of the allocator */
#define CONNECTION (4 * KIB)        /* libmicrohttpd's and ours, beside buffers and the exchange */
#define SESSION (512)               /* places in tables and lists, the allocator's own */
#define RECORDED (1 * KIB)          /* of a session in a snapshot: places in lists of files */
#define STORE (24 * MIB)            /* journals' buffers, the piece of a file that is written */
#define RESTORING (8 * MIB)         /* windows over files, a file's header as import reads it */
#define QUEUED (8 * sizeof(void *)) /* of a request in the lists of scheduler and clerks */
#define ALLOCATOR 8                 /* an eighth of what comes and goes is lost in between */
#define RESERVED_THREAD (136 * MIB) /* of address space: arena and stack */
#define RESERVED (256 * MIB)        /* of address space: libraries, OpenBLAS's buffers */

static size_t add(size_t a, size_t b) { return __builtin_add_overflow(a, b, &a) ? SIZE_MAX : a; }

static size_t mul(size_t a, size_t b) { return __builtin_mul_overflow(a, b, &a) ? SIZE_MAX : a; }

static size_t most(size_t a, size_t b) { return a > b ? a : b; }
static size_t least(size_t a, size_t b) { return a < b ? a : b; }
static size_t beyond(size_t a, size_t b) { return a > b ? a - b : 0; }

/* What the models say, over all of them. */
struct footprint {
    size_t weights, loading;
    size_t session; /* of one: cache, last steps, both in a snapshot */
    size_t blocks;  /* of the cache budget, at most */
    size_t slack;   /* of the cache pool */
    size_t tile;    /* 64 tokens of a layer, as a session is restored from them */
    size_t call, inner;
};

/* What 64 tokens take in the largest layer. */
static size_t tile_of(const struct srv_model *model)
{
    size_t tile = 0;
    for (size_t i = 0; i < model->info.num_layers; i++) {
        const struct attn_layer_spec *spec = attn_model_layer(model->attn, i);
        if (spec != NULL)
            tile = most(tile, mul(64 * sizeof(float) * spec->num_kv_heads,
                                  spec->head_dim + spec->value_head_dim));
    }
    return tile;
}

/* Rows that one body can bring to a layer: a number takes two bytes at least. */
static size_t rows_of(const struct srv_config *config, const struct srv_model *model)
{
    size_t rows = 0, layers = model->info.num_layers;
    for (size_t i = 0; i < layers; i++) {
        const struct attn_layer_spec *spec = attn_model_layer(model->attn, i);
        if (spec != NULL)
            rows =
                most(rows, config->limits.max_body_bytes / 2 /
                               least(spec->hidden_size, least(spec->key_size, spec->value_size)));
    }
    return least(rows, mul(config->limits.max_tokens, ATTN_MAX_BATCH)) + 1;
}

static void add_model(struct footprint *out, const struct srv_config *config,
                      const struct srv_model *model, unsigned threads)
{
    const struct srv_limits *limits = &config->limits;
    struct attn_model_memory memory;
    attn_model_memory(&memory, model->attn);
    size_t layers = model->info.num_layers;
    /* A snapshot's copy is another one of the same size, but for its list of blocks. */
    size_t session = memory.cache_bytes + layers * sizeof(struct srv_last_step);
    if (config->durability != SRV_DURABLE_NONE)
        session += RECORDED + session + layers * SRV_SHARE_BYTES;
    size_t blocks = limits->cache_bytes / memory.block_bytes + 1;
    size_t cached = most(SRV_BATCH_KEYS, limits->max_session_length);
    out->weights = add(out->weights, add(model->info.weight_bytes, memory.side_bytes));
    out->loading = most(out->loading, memory.loading_bytes);
    if (memory.block_bytes != SIZE_MAX) {
        out->session = most(out->session, session);
        out->blocks = most(out->blocks, blocks);
        out->slack = add(out->slack, ATTN_POOL_SLACK);
        out->tile = most(out->tile, tile_of(model));
    }
    const struct attn_call_size call = {rows_of(config, model), limits->max_tokens, SRV_BATCH_ROWS,
                                        cached};
    const struct attn_call_size inner = {SRV_BATCH_ROWS, SRV_DECODE_ROWS_MAX, SRV_BATCH_ROWS,
                                         cached};
    out->call = most(out->call, attn_call_bytes(model->attn, &call, threads));
    out->inner = most(out->inner, attn_call_bytes(model->attn, &inner, threads));
}

static struct footprint add_models(const struct srv_config *config, const struct srv_models *models,
                                   unsigned threads)
{
    struct footprint all = {.inner = MIB};
    const struct attn_call_size weightless = {.rows = config->limits.max_body_bytes / 4};
    all.call = attn_call_bytes(NULL, &weightless, threads);
    for (size_t i = 0; i < models->count; i++)
        add_model(&all, config, &models->items[i], threads);
    return all;
}

static void term(struct srv_memory *out, const char *name, size_t bytes, const char *what)
{
    out->terms[out->count++] = (struct srv_memory_term){name, bytes, what};
    out->total = add(out->total, bytes);
}

static void find_limit(struct srv_memory *out, const struct srv_config *config)
{
    out->limit = attn_memory_limit(&out->source);
    if (config->memory_limit == 0)
        return;
    out->limit = config->memory_limit;
    out->source = "memory_limit";
}

static void add_up(struct srv_memory *out, const struct srv_config *config,
                   const struct srv_models *models)
{
    const struct srv_limits *limits = &config->limits;
    unsigned threads = config->threads != 0 ? (unsigned)config->threads : attn_usable_cpus();
    struct footprint all = add_models(config, models, threads);
    bool stores = config->durability != SRV_DURABLE_NONE;
    size_t sessions = all.blocks > 0 ? limits->max_sessions : 0;
    size_t caches = all.blocks > 0 ? limits->cache_bytes : 0;
    size_t requests = add(limits->max_in_flight_bytes, SRV_PROBE_BYTES);
    size_t working = add(all.call, all.inner);
    size_t connection = SRV_CONNECTION_BYTES + CONNECTION + srv_http_exchange_bytes() +
                        (config->tls_cert != NULL ? SRV_TLS_SESSION_BYTES : 0);
    *out = (struct srv_memory){.call_bytes = all.call, .inner_bytes = all.inner};
    out->threads = threads + (unsigned)config->event_threads + threads / 4 + 4;

    term(out, "program", PROGRAM, "code, libraries, tables");
    term(out, "weights", all.weights, "resident layers of all models");
    term(out, "caches", caches, "cache_bytes");
    term(out, "blocks", add(mul(all.blocks, ATTN_BLOCK_OVERHEAD), all.slack),
         "heads and lists of the caches' blocks, pages they share");
    term(out, "sessions", mul(sessions, sizeof(struct srv_session) + SESSION + all.session),
         "max_sessions, without their caches' blocks");
    term(out, "requests", add(requests, requests / ALLOCATOR),
         "max_in_flight_bytes, and an eighth for the allocator");
    term(out, "working", working, "of the call that is computed, and of steps during its pauses");
    term(out, "connections", mul(limits->max_connections, connection),
         "max_connections, with their heads and small bodies");
    term(out, "queue", mul(limits->max_queue, QUEUED), "max_queue");
    term(out, "threads", add(mul(out->threads, THREAD), attn_engine_bytes(threads)),
         "stacks and scratch");
    /* Lists of blocks that are frozen, and which sessions share them. */
    size_t snapshot = add(STORE, mul(all.blocks, sizeof(void *) + SRV_SHARING_BYTES));
    size_t restoring = add(RESTORING, all.tile);
    term(out, "store", stores ? most(snapshot, restoring) : 0,
         "journal and snapshots, or before them a file that is restored");
    term(out, "loading", beyond(all.loading, add(add(caches, requests), working)),
         "what loading takes beyond what requests and caches take later");
    find_limit(out, config);
}

/* ---- Enough, and saying so ------------------------------------------------------------------- */

static double mib(size_t bytes) { return (double)bytes / (double)MIB; }

static bool refuse(const struct srv_memory *memory, size_t needed, size_t limit, const char *source,
                   char *message, size_t size)
{
    int at =
        snprintf(message, size, "%.1f MiB of memory are needed, %s gives %.1f MiB:", mib(needed),
                 source, mib(limit));
    for (size_t i = 0; i < memory->count; i++)
        if (at > 0 && (size_t)at < size && memory->terms[i].bytes > 0)
            at += snprintf(message + at, size - (size_t)at, "%s %s %.1f", i > 0 ? " +" : "",
                           memory->terms[i].name, mib(memory->terms[i].bytes));
    if (at > 0 && (size_t)at < size)
        snprintf(message + at, size - (size_t)at,
                 " = %.1f MiB; lower cache_bytes, max_in_flight_bytes, max_connections or "
                 "max_body_bytes",
                 mib(memory->total));
    return false;
}

static bool fits(const struct srv_memory *memory, char *message, size_t size)
{
    struct rlimit space;
    size_t reserved = add(add(memory->total, RESERVED), mul(memory->threads, RESERVED_THREAD));
    if (memory->total > memory->limit)
        return refuse(memory, memory->total, memory->limit, memory->source, message, size);
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY &&
        space.rlim_cur < reserved)
        return refuse(memory, reserved, (size_t)space.rlim_cur,
                      "with address space that is reserved, and the limit on that (ulimit -v)",
                      message, size);
    return true;
}

bool srv_memory_fit(struct srv_memory *out, struct srv_config *config,
                    const struct srv_models *models, char *message, size_t size)
{
    bool enough;
    unsigned divisor = 1;
    for (;; divisor *= 2) {
        add_up(out, config, models);
        enough = fits(out, message, size);
        if (enough || !srv_config_halve(config))
            break;
    }
    out->divisor = divisor;
    return enough;
}

static void print_line(struct srv_buffer *out, const char *name, size_t bytes, const char *what)
{
    srv_buffer_printf(out, "  %-12s %15zu  %10.1f MiB  %s\n", name, bytes, mib(bytes), what);
}

void srv_memory_print(struct srv_buffer *out, const struct srv_memory *memory)
{
    srv_buffer_text(out, "memory at most:\n");
    for (size_t i = 0; i < memory->count; i++)
        print_line(out, memory->terms[i].name, memory->terms[i].bytes, memory->terms[i].what);
    print_line(out, "together", memory->total, "");
    if (memory->limit != SIZE_MAX)
        print_line(out, "limit", memory->limit, memory->source);
}
