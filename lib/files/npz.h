/* npz.h: arrays that numpy.savez and numpy.savez_compressed have written, read without trust.
 *
 * An .npz file is a ZIP archive (zip.h) of .npy members: a header in Python's notation with type,
 * order and shape, and the numbers.  Of the types float32, float64, rounded to the nearest float32,
 * and float16 are read, of either byte order, in C's order of elements and in Fortran's.  A header
 * is parsed when its array is looked up, and a member must hold just the numbers that its header
 * says.
 *
 * Source: the format's description in NumPy's manual, "NEP 1". */
#ifndef ATTN_LIB_FILES_NPZ_H
#define ATTN_LIB_FILES_NPZ_H

#include "files/safetensors.h"

struct attn_npz; /* an open file; one thread at a time */

/* Opens file `name` of a directory descriptor, as attn_safetensors_open.
 * Errors: ATTN_NOT_FOUND, ATTN_IO, ATTN_MALFORMED, ATTN_NO_MEMORY. */
enum attn_status attn_npz_open(struct attn_npz **out, int directory, const char *name,
                               struct attn_error *error);
void attn_npz_close(struct attn_npz *npz);

/* The descriptor of the file.  Borrowed. */
int attn_npz_descriptor(const struct attn_npz *npz);

/* attn_visit_names of the arrays, whose names are without ".npy". */
bool attn_npz_visit(const struct attn_npz *npz, const char *prefix, attn_visit_name *visit,
                    void *context);

/* Looks the array up and reads its header: *out is borrowed, NULL where there is none.  `begin` and
 * `end` of the entry are bytes of the member.
 * Errors: ATTN_UNSUPPORTED (its type, its compression), ATTN_MALFORMED, ATTN_IO,
 * ATTN_NO_MEMORY. */
enum attn_status attn_npz_find(const struct attn_tensor_entry **out, struct attn_npz *npz,
                               const char *name, struct attn_error *error);

/* The byte of the file at which the array of such an entry begins, and *bytes of it there. */
size_t attn_npz_offset(size_t *bytes, const struct attn_tensor_entry *entry);

/* As attn_safetensors_read_f32, for an entry of attn_npz_find.  A float64 beyond float32 counts as
 * not finite.  An array in Fortran's order is held as a whole from its first element's reading to
 * its last one's.
 * Errors: ATTN_NON_FINITE, and those of reading the archive (attn_zip_read). */
enum attn_status attn_npz_read_f32(float *out, struct attn_npz *npz,
                                   const struct attn_tensor_entry *entry, size_t first,
                                   size_t count, struct attn_error *error);

/* Bytes of memory that the reader takes; 0 for NULL. */
size_t attn_npz_memory(const struct attn_npz *npz);

#endif
