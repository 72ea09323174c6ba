/* safetensors.h: a strict reader of safetensors files.
 *
 * A file is the header's length n as 8 bytes little-endian, a JSON object of n bytes that maps
 * tensor names to {dtype, shape, data_offsets}, and the data.  Every claim of the header is checked
 * against the file's size before it is used: spans must cover the data without gap or overlap to
 * the last byte and hold just what dtype and shape need.  Weights are read tensor by tensor on
 * request; data need not be aligned.
 *
 * Source: the format's description at github.com/huggingface/safetensors. */
#ifndef ATTN_LIB_FILES_SAFETENSORS_H
#define ATTN_LIB_FILES_SAFETENSORS_H

#include <limits.h>

#include "attn.h"
#include "attn_limits.h"
#include "files/file.h"

struct attn_safetensors_dtype {
    const char *name; /* as the file writes it, "BF16" */
    unsigned bits;    /* of one element */
    bool readable;    /* attn_safetensors_read_f32 widens it */
};

struct attn_tensor_entry {
    const char *name;
    const struct attn_safetensors_dtype *dtype;
    size_t ndim;
    size_t shape[ATTN_SAFETENSORS_MAX_RANK]; /* [ndim] */
    size_t begin, end;                       /* bytes from the start of the data */
};

/* A pair of __metadata__. */
struct attn_safetensors_pair {
    const char *name, *value;
    void *string; /* the JSON string that holds value; the reader's */
};

/* An open file and its parsed header; for readers to read.  Only readers of bytes keep the pairs of
 * __metadata__, since headers of checkpoints may be of any length. */
struct attn_safetensors {
    int file;                /* -1 beside `bytes` */
    const char *bytes;       /* the container, which is the caller's; NULL: it is in `file` */
    char name[NAME_MAX + 1]; /* of the file inside its directory, for messages */
    char *header;
    size_t header_length;
    size_t data_begin, data_length;    /* bytes; entries count from data_begin on */
    struct attn_tensor_entry *entries; /* [count], by name; names live in the header */
    size_t count, capacity;
    struct attn_safetensors_pair *metadata; /* [num_metadata], by name; NULL: not kept */
    size_t num_metadata;
};

/* Opens file `name` of a directory descriptor (AT_FDCWD: the working directory) and reads its
 * header.  The file is closed with the reader.
 * Errors: ATTN_NOT_FOUND, ATTN_IO, ATTN_MALFORMED, ATTN_NO_MEMORY. */
enum attn_status attn_safetensors_open(struct attn_safetensors **out, int directory,
                                       const char *name, struct attn_error *error);

/* As attn_safetensors_open, for a container in memory, whose bytes [size] are not trusted, stay the
 * caller's and must not change until the reader is closed.  A header of more than `max_header`
 * bytes is refused before it is parsed, and pairs of __metadata__ are kept; `name` stands for the
 * container in messages.  The reader takes less than 4 times the header and 512 KiB of memory.
 * Errors: ATTN_MALFORMED, ATTN_NO_MEMORY. */
enum attn_status attn_safetensors_open_bytes(struct attn_safetensors **out, const void *bytes,
                                             size_t size, const char *name, size_t max_header,
                                             struct attn_error *error);
void attn_safetensors_close(struct attn_safetensors *file);

/* The tensor of that name, NULL if there is none.  Borrowed from the reader. */
const struct attn_tensor_entry *attn_safetensors_find(const struct attn_safetensors *file,
                                                      const char *name);

/* The value of a pair of __metadata__; NULL where there is none. */
const char *attn_safetensors_value(const struct attn_safetensors *file, const char *name);

/* Memory that the reader takes: header and entries; 0 for NULL. */
size_t attn_safetensors_memory(const struct attn_safetensors *file);

/* Bytes [first, first + count) of the tensor, at any alignment.  *out points into a container that
 * is in memory, else to `room` [count], into which they are read.  The range must lie inside the
 * tensor.
 * Error: ATTN_IO. */
enum attn_status attn_safetensors_read_bytes(const void **out, const struct attn_safetensors *file,
                                             const struct attn_tensor_entry *entry, size_t first,
                                             size_t count, void *room, struct attn_error *error);

/* out[i] = element first + i of the flattened tensor, i < count, widened exactly from F32, F16 or
 * BF16.  The range must lie inside the tensor: the caller has compared its shape.
 * Errors: ATTN_NON_FINITE (with tensor and index), ATTN_UNSUPPORTED (dtype), ATTN_IO,
 * ATTN_NO_MEMORY. */
enum attn_status attn_safetensors_read_f32(float *out, const struct attn_safetensors *file,
                                           const struct attn_tensor_entry *entry, size_t first,
                                           size_t count, struct attn_error *error);

#endif
