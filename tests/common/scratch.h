/* scratch.h: a temporary directory for tests that need files, and files to put in it. */
#ifndef TESTS_COMMON_SCRATCH_H
#define TESTS_COMMON_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

#define SCRATCH_PATH 256

/* Creates an empty directory under /tmp and writes its path. */
void scratch_make(char path[SCRATCH_PATH]);

/* Removes the directory with all that is in it. */
void scratch_remove(const char *path);

/* Writes `length` bytes as file `name` of the directory. */
void scratch_write(const char *path, const char *name, const void *data, size_t length);

/* Writes a safetensors file: the header's length, the header, `data_length` bytes of data, which
 * are zeros where data is NULL. */
void scratch_write_tensors(const char *path, const char *name, const char *header, const void *data,
                           size_t data_length);

/* Reads a whole file, which must exist; the caller's to free. */
char *scratch_read(size_t *length, const char *path, const char *name);

/* Element i of tensor `tensor` in a safetensors file, widened from F32, F16 or BF16 by arithmetic:
 * an oracle that shares no code with the library.  *count is the number of elements; the result is
 * the caller's to free, NULL if there is no such tensor. */
float *scratch_tensor(size_t *count, const char *path, const char *name, const char *tensor);

#endif
