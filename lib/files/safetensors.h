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

struct attn_safetensors; /* an open file and its parsed header */

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

/* The descriptor of the file.  Borrowed. */
int attn_safetensors_descriptor(const struct attn_safetensors *file);

/* The byte of the file at which the tensor begins. */
size_t attn_safetensors_offset(const struct attn_safetensors *file,
                               const struct attn_tensor_entry *entry);

size_t attn_safetensors_count(const struct attn_safetensors *file);

/* attn_visit_names of the tensors. */
bool attn_safetensors_visit(const struct attn_safetensors *file, const char *prefix,
                            attn_visit_name *visit, void *context);

/* The tensor of that name, NULL if there is none.  Borrowed from the reader. */
const struct attn_tensor_entry *attn_safetensors_find(const struct attn_safetensors *file,
                                                      const char *name);

/* The pairs of __metadata__ in the order of their names, and the value of one (NULL where there is
 * none).  Only readers of bytes keep them, since headers of checkpoints may be of any length. */
const struct attn_safetensors_pair *attn_safetensors_metadata(size_t *count,
                                                              const struct attn_safetensors *file);
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
