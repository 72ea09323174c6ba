/* scratch.c: temporary files, and a plain reading of safetensors that tests compare against. */
#include "scratch.h"

#include "half.h"

#include <check.h>
#include <ftw.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void scratch_make(char path[SCRATCH_PATH])
{
    snprintf(path, SCRATCH_PATH, "/tmp/attn-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(path));
}

static void join(char out[2 * SCRATCH_PATH], const char *path, const char *name)
{
    snprintf(out, 2 * SCRATCH_PATH, "%s/%s", path, name);
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *at)
{
    (void)status;
    (void)type;
    (void)at;
    return remove(path);
}

void scratch_remove(const char *path)
{
    ck_assert_int_eq(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static FILE *create(const char *path, const char *name)
{
    char file[2 * SCRATCH_PATH];
    join(file, path, name);
    FILE *stream = fopen(file, "wb");
    ck_assert_ptr_nonnull(stream);
    return stream;
}

static void put(FILE *stream, const void *data, size_t length)
{
    ck_assert_uint_eq(fwrite(data, 1, length, stream), length);
}

void scratch_write(const char *path, const char *name, const void *data, size_t length)
{
    FILE *stream = create(path, name);
    put(stream, data, length);
    ck_assert_int_eq(fclose(stream), 0);
}

void scratch_write_tensors(const char *path, const char *name, const char *header, const void *data,
                           size_t data_length)
{
    uint64_t length = strlen(header);
    FILE *stream = create(path, name);
    put(stream, &length, sizeof length);
    put(stream, header, (size_t)length);
    if (data != NULL)
        put(stream, data, data_length);
    for (size_t i = 0; data == NULL && i < data_length; i++)
        ck_assert_int_eq(fputc(0, stream), 0);
    ck_assert_int_eq(fclose(stream), 0);
}

char *scratch_read(size_t *length, const char *path, const char *name)
{
    char file[2 * SCRATCH_PATH];
    join(file, path, name);
    FILE *stream = fopen(file, "rb");
    ck_assert_msg(stream != NULL, "%s is missing", file);
    ck_assert_int_eq(fseek(stream, 0, SEEK_END), 0);
    *length = (size_t)ftell(stream);
    rewind(stream);
    char *data = malloc(*length + 1);
    ck_assert_ptr_nonnull(data);
    ck_assert_uint_eq(fread(data, 1, *length, stream), *length);
    fclose(stream);
    data[*length] = '\0';
    return data;
}

static float element(const char *data, const char *dtype, size_t i)
{
    uint16_t half;
    float whole;
    if (strcmp(dtype, "F32") == 0) {
        memcpy(&whole, data + 4 * i, sizeof whole);
        return whole;
    }
    memcpy(&half, data + 2 * i, sizeof half);
    if (strcmp(dtype, "F16") == 0)
        return (float)half_value(half);
    uint32_t bits = (uint32_t)half << 16; /* BF16 is the upper half of a float */
    memcpy(&whole, &bits, sizeof whole);
    return whole;
}

float *scratch_tensor(size_t *count, const char *path, const char *name, const char *tensor)
{
    size_t size;
    uint64_t header_length;
    char *file = scratch_read(&size, path, name);
    memcpy(&header_length, file, sizeof header_length);
    json_t *header = json_loadb(file + 8, (size_t)header_length, 0, NULL);
    json_t *entry = json_object_get(header, tensor);
    float *out = NULL;
    if (entry != NULL) {
        const char *dtype = json_string_value(json_object_get(entry, "dtype"));
        json_t *span = json_object_get(entry, "data_offsets");
        size_t begin = (size_t)json_integer_value(json_array_get(span, 0));
        size_t end = (size_t)json_integer_value(json_array_get(span, 1));
        *count = (end - begin) / (strcmp(dtype, "F32") == 0 ? 4 : 2);
        out = malloc(*count * sizeof *out);
        ck_assert_ptr_nonnull(out);
        for (size_t i = 0; i < *count; i++)
            out[i] = element(file + 8 + header_length + begin, dtype, i);
    }
    json_decref(header);
    free(file);
    return out;
}
