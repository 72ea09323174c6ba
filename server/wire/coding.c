/* coding.c: gzip and deflate through zlib, one stream at a time.
 *
 * The room for a decompressed body grows by doubling, and each growth is granted before it is
 * taken, so that a bomb takes no more memory than its request may have.  The compressed form stays
 * in memory until all of it is decompressed.  Replies are compressed in pieces, between which an
 * I/O worker serves other requests. */
#include "wire/coding.h"

#include <stdlib.h>
#include <zlib.h>

#include "basics/mem.h"
#include "wire/request.h"

#define FIRST_CAPACITY 4096              /* bytes: least room for output */
#define INPUT_CHUNK ((size_t)1 << 20)    /* bytes that zlib is given in one call */
#define EXPANDED_CHUNK ((size_t)1 << 20) /* bytes that zlib may write in one call: bodies */
#define CODED_CHUNK ((size_t)64 << 10)   /* likewise: replies */
#define LEVEL 1                          /* text of numbers hardly gets shorter at higher ones */

static const struct {
    const char *name; /* in Content-Encoding */
    int window_bits;  /* as zlib takes them: 16 more mean gzip */
} codings[] = {
    [SRV_IDENTITY] = {"identity", 0},
    [SRV_GZIP] = {"gzip", MAX_WBITS + 16},
    [SRV_DEFLATE] = {"deflate", MAX_WBITS},
};

const char *srv_coding_name(enum srv_coding coding) { return codings[coding].name; }

/* ---- Expanding ------------------------------------------------------------------------------- */

struct expansion {
    z_stream z;
    const struct srv_decompress_limits *limits;
    struct srv_error *error;
    size_t in;   /* bytes of input left */
    size_t most; /* bytes of output allowed */
    char *out;   /* [capacity + 1] */
    size_t length, capacity;
};

static enum srv_error_code grow(struct expansion *e)
{
    size_t capacity = attn_min(e->capacity > 0 ? 2 * e->capacity : FIRST_CAPACITY, e->most + 1);
    char *out = NULL;
    if (e->limits->grant == NULL || e->limits->grant(e->limits->context, capacity - e->capacity))
        out = realloc(e->out, capacity + 1);
    if (out == NULL)
        return srv_fail(e->error, SRV_E_OUT_OF_MEMORY, "Content-Encoding",
                        "no memory for a body of %zu bytes and more", e->length);
    e->out = out;
    e->capacity = capacity;
    return SRV_OK;
}

/* The bound is the caller's or, where that is larger, the one of the coded length. */
static enum srv_error_code fail_large(const struct expansion *e)
{
    if (e->most >= e->limits->most)
        return srv_fail(e->error, SRV_E_BODY_TOO_LARGE, "Content-Encoding",
                        "the body expands to more than %zu bytes", e->most);
    return srv_fail(e->error, SRV_E_BODY_TOO_LARGE, "Content-Encoding",
                    "the body expands to more than %zu bytes, the larger of %d times its coded "
                    "length and 1 MiB",
                    e->most, SRV_DECOMPRESS_RATIO_MAX);
}

static enum srv_error_code fail_inflate(const struct expansion *e, int status)
{
    if (status == Z_MEM_ERROR)
        return srv_fail(e->error, SRV_E_OUT_OF_MEMORY, "Content-Encoding", "no memory for zlib");
    return srv_fail(e->error, SRV_E_MALFORMED_ENCODING, "Content-Encoding",
                    status == Z_BUF_ERROR ? "the coded body ends too early"
                                          : "the coded body is damaged near byte %lu",
                    e->z.total_in);
}

/* Calls inflate until the stream's end. */
static enum srv_error_code expand(struct expansion *e)
{
    for (int status = Z_OK; status != Z_STREAM_END;) {
        if (srv_cancel_ask(&e->limits->cancel, e->error) != SRV_OK ||
            (e->length == e->capacity && grow(e) != SRV_OK))
            return e->error->code;
        const size_t given = attn_min(e->in, INPUT_CHUNK);
        const size_t space = attn_min(e->capacity - e->length, EXPANDED_CHUNK);
        e->z.avail_in = (uInt)given;
        e->z.next_out = (Bytef *)e->out + e->length;
        e->z.avail_out = (uInt)space;
        status = inflate(&e->z, Z_NO_FLUSH);
        e->in -= given - e->z.avail_in;
        e->length += space - e->z.avail_out;
        if (e->length > e->most)
            return fail_large(e);
        if (status != Z_OK && status != Z_STREAM_END)
            return fail_inflate(e, status);
    }
    if (e->in > 0)
        return srv_fail(e->error, SRV_E_MALFORMED_ENCODING, "Content-Encoding",
                        "%zu bytes follow the end of the coded body", e->in);
    return SRV_OK;
}

enum srv_error_code srv_decompress(char **out, size_t *length, enum srv_coding coding,
                                   const char *bytes, size_t size,
                                   const struct srv_decompress_limits *limits,
                                   struct srv_error *error)
{
    struct expansion e = {.limits = limits, .error = error, .in = size};
    size_t expanded =
        size > SIZE_MAX / SRV_DECOMPRESS_RATIO_MAX ? SIZE_MAX : size * SRV_DECOMPRESS_RATIO_MAX;
    e.most = attn_min(limits->most,
                      expanded > SRV_DECOMPRESS_FREE_BYTES ? expanded : SRV_DECOMPRESS_FREE_BYTES);
    e.most = attn_min(e.most, SIZE_MAX / 4);
    e.z.next_in = (Bytef *)(uintptr_t)bytes;
    int status = inflateInit2(&e.z, codings[coding].window_bits);
    enum srv_error_code code = status == Z_OK ? expand(&e) : fail_inflate(&e, status);
    inflateEnd(&e.z);
    if (code != SRV_OK) {
        free(e.out);
        return code;
    }
    e.out[e.length] = '\0';
    *out = e.out;
    *length = e.length;
    return SRV_OK;
}

enum srv_error_code srv_body_decompress(struct srv_request *request, size_t most,
                                        const struct srv_cancel *cancel, struct srv_error *error)
{
    struct srv_decompress_limits limits = {
        .most = most, .grant = srv_request_charge, .context = request};
    char *body;
    size_t length;
    if (request->coding == SRV_IDENTITY)
        return SRV_OK;
    if (cancel != NULL)
        limits.cancel = *cancel;
    if (srv_decompress(&body, &length, request->coding, request->body, request->body_length,
                       &limits, error) != SRV_OK)
        return error->code;
    request->coding = SRV_IDENTITY;
    srv_request_replace_body(request, body, length);
    return SRV_OK;
}

/* ---- Compressing replies --------------------------------------------------------------------- */

#define COMPRESSOR_BYTES ((size_t)256 << 10) /* what the struct and zlib's stream take, about */

struct srv_compressor {
    z_stream z;
    struct srv_buffer out;
    size_t left; /* bytes of the plain reply that zlib has not been given */
};

/* NULL where memory is short. */
static struct srv_compressor *new_compressor(struct srv_request *request)
{
    const struct srv_buffer *plain = &request->reply.body;
    struct srv_compressor *c = NULL;
    if (srv_request_charge(request, COMPRESSOR_BYTES))
        c = calloc(1, sizeof *c);
    if (c == NULL || deflateInit2(&c->z, LEVEL, Z_DEFLATED, codings[request->accepted].window_bits,
                                  MAX_MEM_LEVEL - 1, Z_DEFAULT_STRATEGY) != Z_OK) {
        free(c);
        return NULL;
    }
    c->z.next_in = (Bytef *)plain->data;
    c->left = plain->length;
    srv_buffer_init(&c->out, plain->length - 1);
    return c;
}

/* One call of deflate, with its return value: Z_OK while there is more, Z_STREAM_END at the end.
 * Z_BUF_ERROR where the output is as long as the plain reply or memory is short. */
static int compress_piece(struct srv_compressor *c, struct srv_request *request)
{
    struct srv_buffer *out = &c->out;
    size_t given = attn_min(c->left, INPUT_CHUNK);
    size_t space = attn_min(out->limit - out->length, CODED_CHUNK);
    char *to = srv_request_charge(request, space) ? srv_buffer_reserve(out, space) : NULL;
    if (to == NULL || space == 0)
        return Z_BUF_ERROR;
    c->z.avail_in = (uInt)given;
    c->z.next_out = (Bytef *)to;
    c->z.avail_out = (uInt)space;
    int status = deflate(&c->z, given == c->left ? Z_FINISH : Z_NO_FLUSH);
    c->left -= given - c->z.avail_in;
    out->length += space - c->z.avail_out;
    return status;
}

bool srv_reply_compress(struct srv_request *request)
{
    struct srv_reply *reply = &request->reply;
    if (reply->body.length <= SRV_LARGE_BYTES)
        return false;
    if (!request->compresses)
        return false;
    reply->varies = true;
    if (request->accepted == SRV_IDENTITY)
        return false;
    if (request->compressor == NULL)
        request->compressor = new_compressor(request);
    int status =
        request->compressor != NULL ? compress_piece(request->compressor, request) : Z_MEM_ERROR;
    if (status == Z_OK)
        return true;
    if (status == Z_STREAM_END) {
        struct srv_buffer plain = reply->body;
        reply->body = request->compressor->out;
        reply->coding = request->accepted;
        request->compressor->out = plain;
    }
    srv_reply_compress_stop(request);
    return false;
}

void srv_reply_compress_stop(struct srv_request *request)
{
    struct srv_compressor *c = request->compressor;
    if (c == NULL)
        return;
    deflateEnd(&c->z);
    srv_buffer_fini(&c->out);
    free(c);
    request->compressor = NULL;
}
