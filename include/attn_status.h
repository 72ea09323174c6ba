/* attn_status.h: what a call of the library returns, and the record of an error.
 *
 * attn.h includes this header; its opening says how errors are reported. */
#ifndef ATTN_STATUS_H
#define ATTN_STATUS_H

#if defined(__GNUC__)
#define ATTN_MUST_CHECK __attribute__((warn_unused_result))
#else
#define ATTN_MUST_CHECK
#endif

enum attn_status {
    ATTN_OK = 0,
    ATTN_NO_MEMORY,      /* the machine is out of memory */
    ATTN_INVALID,        /* a field is wrong in itself: missing, negative, contradictory */
    ATTN_SHAPE_MISMATCH, /* sizes do not agree with each other or with the layer */
    ATTN_OUT_OF_RANGE,   /* a value lies outside its documented bounds */
    ATTN_NON_FINITE,     /* an input holds NaN or infinity */
    ATTN_OVERFLOW,       /* finite inputs, but a query, key or value beyond ATTN_MAX_MAGNITUDE, a
                            cached number beyond kv_dtype (f16: 65504), or an output beyond
                            float32 */
    ATTN_NOT_FOUND,      /* no such file, tensor or layer */
    ATTN_IO,             /* the operating system refused to read */
    ATTN_MALFORMED,      /* a file that breaks its own format */
    ATTN_UNSUPPORTED,    /* well formed, understood, and not something this library computes */
    ATTN_CACHE_FULL,     /* the cache's max_length would be passed */
    ATTN_POOL_FULL,      /* the cache pool's budget would be passed */
    ATTN_FORGOTTEN,      /* tokens are needed that a layer's window has given up */
    ATTN_ROPE_CHANGES,   /* longrope: the cached keys are rotated for another length */
    ATTN_CANCELLED,      /* attn_yield.run of the call returned false */
};

/* An error record for a person to read.  A call that fails fills the record, a call that succeeds
 * leaves it alone; NULL may be passed instead.  Texts are English, printable, without paths. */
struct attn_error {
    enum attn_status status;
    char param[64];    /* the field, tensor or key at fault; "" where there is none */
    char message[256]; /* one line: field, value, limit */
};

/* The name of a status: "cache_full" for ATTN_CACHE_FULL, "unknown" for any other number.  The
 * string is static, never NULL. */
const char *attn_status_name(enum attn_status status);

#endif
