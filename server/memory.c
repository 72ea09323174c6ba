/* memory.c: the terms of the daemon's memory: an upper bound on what it takes, and the fit to what
 * there is.
 *
 * Phases that do not overlap share their memory.  Weights are loaded before there are caches,
 * requests and calls, so loading adds only what exceeds the memory of these three.  Sessions are
 * restored before snapshots are written, so the store counts the larger of the two.  Address space
 * (RLIMIT_AS) is reserved beyond what is touched: stacks and arenas of the allocator count whole
 * there. */
#include "memory.h"

#include <sys/resource.h>

#include "basics/mem.h"
#include "config/config.h"
#include "http/http.h"
#include "session/weightless.h"
#include "store/blocks.h"
#include "store/store.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* Bytes. */
#define PROGRAM_BYTES (24 * MIB)         /* code, libraries, the configuration, tables */
#define THREAD_BYTES (512 * KIB)         /* a thread's stack and its arena of the allocator */
#define CONNECTION_BYTES (4 * KIB)       /* libmicrohttpd's and ours, beside buffer and exchange */
#define SESSION_BYTES (512)              /* entries of tables and lists, the allocator's overhead */
#define SNAPSHOT_SESSION_BYTES (1 * KIB) /* a session's entries in a snapshot's lists */
#define STORE_BYTES (24 * MIB)  /* buffers of journals, of blocks that are written, and read */
#define RESTORE_BYTES (4 * MIB) /* windows, runs of blocks that are read, which are unread */
#define WRITER_BYTES (4 * MIB)  /* a piece of a file of weights */
#define QUEUED_BYTES (8 * sizeof(void *)) /* a request in queues of scheduler and I/O workers */
/* Bytes of address space. */
#define RESERVED_THREAD_BYTES (136 * MIB) /* a thread's arena and stack */
#define RESERVED_BYTES (192 * MIB)        /* libraries */

#define ALLOCATOR_DIVISOR 8 /* fragmentation: an eighth of what is allocated and freed */
#define WEIGHTS_DIVISOR 4   /* weights above a quarter of the whole are worth a word of advice */

static const struct {
    const char *name, *what;
} terms[SRV_MEMORY_TERMS] = {
    [SRV_MEMORY_PROGRAM] = {"program", "code, libraries, tables, stacks and scratch of threads"},
    [SRV_MEMORY_WEIGHTS] = {"weights", "resident layers of all models, and loading them"},
    [SRV_MEMORY_CACHES] = {"caches", "cache_bytes, and heads and lists of the caches' blocks"},
    [SRV_MEMORY_SESSIONS] = {"sessions", "max_sessions, without their caches' blocks"},
    [SRV_MEMORY_REQUESTS] = {"requests",
                             "max_in_flight_bytes, an eighth for the allocator, max_queue"},
    [SRV_MEMORY_WORKING] = {"working",
                            "of the call that is computed, and of steps during its pauses"},
    [SRV_MEMORY_CONNECTIONS] = {"connections",
                                "max_connections, with their heads and small bodies"},
    [SRV_MEMORY_STORE] = {"store", "journal and snapshots, or before them a file that is restored"},
};

static size_t excess(size_t a, size_t b) { return a > b ? a - b : 0; }

/* ---- Models ---------------------------------------------------------------------------------- */

/* Needs of all models together, or of the largest of them; in bytes but for num_blocks. */
struct footprint {
    size_t weights, loading;
    size_t session;     /* an empty cache and last steps; twice that while it is in a snapshot */
    size_t num_blocks;  /* that the cache budget holds at most */
    size_t slack;       /* of the cache pool */
    size_t tile;        /* 64 tokens of a layer, the unit in which a session is restored */
    size_t call, inner; /* of a long call, and of the steps computed during its pauses */
};

/* Finds the bytes of a block's tokens as float32 in the model's largest layer, and the rows that
 * one body can bring to a layer: a number takes at least two bytes. */
static void measure(size_t *tile, size_t *rows, const struct srv_config *config,
                    const struct srv_model *model)
{
    const size_t numbers = config->limits.max_body_bytes / 2;
    *tile = *rows = 0;
    for (size_t i = 0; i < model->info.num_layers; i++) {
        const struct attn_layer_spec *spec = attn_model_layer(model->attn, i);
        if (spec == NULL)
            continue;
        const struct attn_cached_sizes sizes = attn_cached_sizes(spec);
        const size_t width = attn_min(spec->key_size, spec->value_size);
        *tile = attn_max(*tile, attn_mul(ATTN_BLOCK_TOKENS * sizeof(float) * sizes.heads,
                                         sizes.key + sizes.value));
        *rows = attn_max(*rows, numbers / attn_min(spec->hidden_size, width));
    }
    *rows = attn_min(*rows, attn_mul(config->limits.max_tokens, ATTN_MAX_BATCH)) + 1;
}

/* Sessions of so many layers, whose caches take so many bytes when they are empty. */
static void add_sessions(struct footprint *out, const struct srv_config *config, size_t layers,
                         size_t cache_bytes, size_t block_bytes)
{
    size_t session = cache_bytes + layers * sizeof(struct srv_last_step);
    /* A snapshot's copy has the same size, except for its list of blocks. */
    if (config->durability != SRV_DURABLE_NONE)
        session += SNAPSHOT_SESSION_BYTES + session + layers * sizeof(struct srv_manifest_layer);
    out->session = attn_max(out->session, session);
    out->num_blocks = attn_max(out->num_blocks, config->limits.cache_bytes / block_bytes + 1);
}

static void add_model(struct footprint *out, const struct srv_config *config,
                      const struct srv_model *model, unsigned threads)
{
    size_t tile, rows;
    measure(&tile, &rows, config, model);
    const struct attn_call_size call = {
        .rows = rows,
        .tokens = config->limits.max_tokens,
        .batched_rows = SRV_BATCH_ROWS,
        .cached = attn_max(SRV_BATCH_KEYS, config->limits.max_session_length),
    };
    struct attn_call_size inner = call; /* a batch of steps */
    struct attn_model_memory memory;
    inner.rows = SRV_BATCH_ROWS;
    inner.tokens = SRV_DECODE_ROWS_MAX;
    attn_model_memory(&memory, model->attn);
    out->weights = attn_add(out->weights, attn_add(model->info.weight_bytes, memory.side_bytes));
    out->loading = attn_max(out->loading, memory.loading_bytes + WRITER_BYTES);
    add_sessions(out, config, model->info.num_layers, memory.cache_bytes, memory.block_bytes);
    out->slack = attn_add(out->slack, ATTN_POOL_SLACK);
    out->tile = attn_max(out->tile, tile);
    out->call = attn_max(out->call, attn_call_bytes(model->attn, &call, threads));
    out->inner = attn_max(out->inner, attn_call_bytes(model->attn, &inner, threads));
}

static struct footprint add_models(const struct srv_config *config, const struct srv_models *models,
                                   unsigned threads)
{
    const size_t shapes = config->limits.max_weightless_shapes;
    const struct attn_call_size weightless = {.rows = config->limits.max_body_bytes / 4};
    struct footprint all = {.inner = MIB, .call = attn_call_bytes(NULL, &weightless, threads)};
    struct srv_weightless_memory memory;
    for (size_t i = 0; i < models->count; i++)
        add_model(&all, config, &models->items[i], threads);
    if (shapes >
        0) { /* weightless sessions may have any shape within bounds, and so many at once */
        srv_weightless_memory(&memory, threads);
        add_sessions(&all, config, memory.layers, memory.cache_bytes, memory.block_bytes);
        all.slack = attn_add(all.slack, attn_mul(shapes, ATTN_POOL_SLACK));
        all.tile = attn_max(all.tile, memory.tile_bytes);
        all.inner = attn_max(all.inner, memory.batch_bytes);
    }
    all.call = attn_max(all.call, all.inner);
    return all;
}

/* ---- The sum --------------------------------------------------------------------------------- */

static size_t count_adopted(const struct srv_config *config)
{
    size_t count = config->adopt != NULL;
    for (const char *at = config->adopt; at != NULL && *at != '\0'; at++)
        count += *at == ',';
    return count;
}

/* Snapshots are written after the last session has been restored. */
static size_t store_bytes(const struct srv_config *config, const struct footprint *all)
{
    /* The frozen lists of blocks, and which of them were written; where blocks stand. */
    size_t snapshot =
        attn_add(STORE_BYTES, attn_mul(all->num_blocks, sizeof(void *) + SRV_WRITTEN_BLOCK_BYTES));
    size_t restoring = attn_add(attn_add(RESTORE_BYTES, all->tile),
                                attn_mul(all->num_blocks, SRV_MAPPED_BLOCK_BYTES));
    return config->durability != SRV_DURABLE_NONE
               ? attn_mul(1 + count_adopted(config), attn_max(snapshot, restoring))
               : 0;
}

static void add_up(struct srv_memory *out, const struct srv_config *config,
                   const struct srv_models *models)
{
    const struct srv_limits *limits = &config->limits;
    const struct attn_engine_options engine = srv_config_engine(config);
    unsigned threads = engine.threads + (unsigned)config->event_threads + engine.threads / 4 + 7 +
                       3 * (unsigned)count_adopted(config);
    struct footprint all = add_models(config, models, engine.threads);
    bool cached = all.num_blocks > 0;
    size_t caches = cached ? limits->cache_bytes : 0, working = attn_add(all.call, all.inner);
    size_t blocks = attn_add(attn_mul(all.num_blocks, ATTN_BLOCK_OVERHEAD), all.slack);
    size_t session = sizeof(struct srv_session) + SESSION_BYTES + all.session;
    size_t requests =
        attn_add(attn_add(limits->max_in_flight_bytes, SRV_PROBE_BYTES), limits->inputs_bytes);
    size_t after_loading = attn_add(attn_add(caches, requests), working); /* in use after loading */
    size_t connections =
        attn_add(limits->max_connections, attn_mul(config->event_threads, SRV_MAX_RESERVED));
    size_t connection = SRV_CONNECTION_BYTES + CONNECTION_BYTES + srv_http_exchange_bytes() +
                        (config->tls_cert != NULL ? SRV_TLS_SESSION_BYTES : 0);
    *out = (struct srv_memory){
        .terms =
            {
                [SRV_MEMORY_PROGRAM] =
                    attn_add(attn_add(PROGRAM_BYTES, attn_mul(threads, THREAD_BYTES)),
                             attn_engine_bytes(&engine)),
                [SRV_MEMORY_WEIGHTS] = attn_add(all.weights, excess(all.loading, after_loading)),
                [SRV_MEMORY_CACHES] = attn_add(caches, blocks),
                [SRV_MEMORY_SESSIONS] = cached ? attn_mul(limits->max_sessions, session) : 0,
                [SRV_MEMORY_REQUESTS] = attn_add(attn_add(requests, requests / ALLOCATOR_DIVISOR),
                                                 attn_mul(limits->max_queue, QUEUED_BYTES)),
                [SRV_MEMORY_WORKING] = working,
                [SRV_MEMORY_CONNECTIONS] = attn_mul(connections, connection),
                [SRV_MEMORY_STORE] = store_bytes(config, &all),
            },
        .call_bytes = all.call,
        .yield_call_bytes = all.inner,
        .reserved = attn_add(attn_add(RESERVED_BYTES, attn_mul(threads, RESERVED_THREAD_BYTES)),
                             attn_engine_reserved(&engine)),
        .threads = threads,
    };
    for (size_t i = 0; i < SRV_MEMORY_TERMS; i++)
        out->total = attn_add(out->total, out->terms[i]);
    out->limit = attn_memory_limit(&out->source);
    if (config->memory_limit != 0) {
        out->limit = config->memory_limit;
        out->source = "memory_limit";
    }
}

/* ---- Fitting it ------------------------------------------------------------------------------ */

static double mib(size_t bytes) { return (double)bytes / (double)MIB; }

/* The advice lowers these, one after another until the sum fits, to what still serves a few
 * callers.  A 0 of `threads` is one for each CPU. */
static const struct {
    const char *flag, *text;
    size_t offset, value; /* in struct srv_config */
} reductions[] = {
#define AT(member) offsetof(struct srv_config, member)
    {"--cache-bytes", "4MiB", AT(limits.cache_bytes), 4 * MIB},
    {"--max-in-flight-bytes", "4MiB", AT(limits.max_in_flight_bytes), 4 * MIB},
    {"--inputs-bytes", "1MiB", AT(limits.inputs_bytes), MIB},
    {"--max-connections", "64", AT(limits.max_connections), 64},
    {"--max-body-bytes", "1MiB", AT(limits.max_body_bytes), MIB},
    {"--max-sessions", "64", AT(limits.max_sessions), 64},
    {"--max-weightless-shapes", "0", AT(limits.max_weightless_shapes), 0},
    {"--threads", "1", AT(threads), 1},
#undef AT
};

/* The memory that is needed, and what there is of it: of all memory, or of address space. */
struct need {
    size_t bytes, limit;
    const char *source; /* of the limit */
};

static struct need need_of(const struct srv_memory *memory)
{
    struct rlimit space;
    size_t reserved = attn_add(memory->total, memory->reserved);
    if (memory->total > memory->limit || getrlimit(RLIMIT_AS, &space) != 0 ||
        space.rlim_cur == RLIM_INFINITY || space.rlim_cur >= reserved)
        return (struct need){memory->total, memory->limit, memory->source};
    return (struct need){reserved, (size_t)space.rlim_cur,
                         "with address space that is reserved, and the limit on that (ulimit -v)"};
}

static bool fits(const struct srv_memory *memory)
{
    const struct need need = need_of(memory);
    return need.bytes <= need.limit;
}

/* Options with which it would start, or where none are enough the least that would do. */
static void advise(struct srv_buffer *text, struct srv_config config,
                   const struct srv_models *models)
{
    const size_t count = ATTN_COUNT(reductions);
    char flags[320] = "";
    struct srv_memory memory;
    add_up(&memory, &config, models);
    for (size_t i = 0, length = 0; i < count && !fits(&memory); i++) {
        size_t *value = (size_t *)((char *)&config + reductions[i].offset);
        if (*value != 0 ? *value <= reductions[i].value : reductions[i].value == 0)
            continue;
        *value = reductions[i].value;
        length += (size_t)snprintf(flags + length, sizeof flags - length, " %s %s",
                                   reductions[i].flag, reductions[i].text);
        add_up(&memory, &config, models);
    }
    /* Rounded up, so that the number suffices as a limit. */
    const struct need least = need_of(&memory);
    srv_buffer_printf(
        text, "; %s %.1f MiB, with%s",
        least.bytes <= least.limit ? "it would start in" : "the least that would start is",
        mib(attn_add(least.bytes, MIB / 20)), flags[0] != '\0' ? flags : " these options");
}

/* The divisor is tried and not computed: the sum is not linear in the shares (working memory of a
 * call is not in max_body_bytes, and terms of phases that do not overlap are maxima).  A few sums
 * take microseconds. */
bool srv_memory_fit(struct srv_memory *out, struct srv_config *config,
                    const struct srv_models *models, char message[SRV_MESSAGE_MAX])
{
    struct srv_limits *limits = &config->limits;
    struct srv_buffer text;
    bool half = limits->max_client_in_flight_bytes == 0;
    for (unsigned divisor = 1; divisor <= SRV_MAX_DIVISOR; divisor *= 2) {
        srv_config_divide_defaults(config, divisor);
        if (half)
            limits->max_client_in_flight_bytes = limits->max_in_flight_bytes / 2;
        add_up(out, config, models);
        out->divisor = divisor;
        if (fits(out))
            return true;
    }
    const struct need need = need_of(out);
    srv_buffer_init(&text, SRV_MESSAGE_MAX);
    srv_buffer_lend(&text, message, SRV_MESSAGE_MAX);
    srv_buffer_printf(&text, "%.1f MiB of memory are needed, %s gives %.1f MiB:", mib(need.bytes),
                      need.source, mib(need.limit));
    for (size_t i = 0; i < SRV_MEMORY_TERMS; i++)
        if (out->terms[i] > 0)
            srv_buffer_printf(&text, "%s %s %.1f", i > 0 ? " +" : "", terms[i].name,
                              mib(out->terms[i]));
    srv_buffer_printf(&text, " = %.1f MiB", mib(out->total));
    advise(&text, *config, models);
    if (out->terms[SRV_MEMORY_WEIGHTS] > out->total / WEIGHTS_DIVISOR)
        srv_buffer_text(&text, "; weights take less as --dtype bf16 or int8, and with fewer layers "
                               "(\"layers\" of a model)");
    return false;
}

void srv_memory_print(struct srv_buffer *out, const struct srv_memory *memory)
{
    static const char line[] = "  %-12s %15zu  %10.1f MiB  %s\n";
    srv_buffer_text(out, "memory at most:\n");
    for (size_t i = 0; i < SRV_MEMORY_TERMS; i++)
        srv_buffer_printf(out, line, terms[i].name, memory->terms[i], mib(memory->terms[i]),
                          terms[i].what);
    srv_buffer_printf(out, line, "together", memory->total, mib(memory->total), "");
    if (memory->limit != SIZE_MAX)
        srv_buffer_printf(out, line, "limit", memory->limit, mib(memory->limit), memory->source);
}
