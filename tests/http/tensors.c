/* tensors.c: from nested JSON arrays to floats. */
#include "tensors.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Reads the numbers of `value` below the dimensions `shape`; returns the place after the last. */
static float *read_array(float *out, const json_t *value, const char *name, size_t rank,
                         const size_t *shape)
{
    if (rank == 0) {
        ck_assert_msg(json_is_number(value) || json_is_null(value), "%s holds no number", name);
        *out = json_is_null(value) ? -INFINITY : (float)json_number_value(value);
        return out + 1;
    }
    ck_assert_msg(json_is_array(value) && json_array_size(value) == shape[0],
                  "%s: %zu elements where %zu are expected, %zu dimensions from the last", name,
                  json_array_size(value), shape[0], rank);
    for (size_t i = 0; i < shape[0]; i++)
        out = read_array(out, json_array_get(value, i), name, rank - 1, shape + 1);
    return out;
}

float *tensor_of(const json_t *object, const char *name, size_t rank, const size_t *shape)
{
    size_t count = 1;
    const json_t *value = json_object_get(object, name);
    ck_assert_msg(value != NULL, "the answer has no \"%s\"", name);
    for (size_t i = 0; i < rank; i++)
        count *= shape[i];
    float *out = malloc((count > 0 ? count : 1) * sizeof *out);
    ck_assert_ptr_nonnull(out);
    read_array(out, value, name, rank, shape);
    return out;
}

void expect_close(const char *what, const float *got, const float *want, size_t count,
                  double tolerance)
{
    for (size_t i = 0; i < count; i++) {
        double error = fabs((double)got[i] - (double)want[i]) / fmax(1, fabs((double)want[i]));
        bool close = (isinf(want[i]) && got[i] == want[i]) || error <= tolerance;
        ck_assert_msg(close, "%s[%zu] is %.9g, expected %.9g", what, i, (double)got[i],
                      (double)want[i]);
    }
}

char *exact_text(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    char *text = value == NULL ? strdup("")
                               : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS |
                                                       JSON_REAL_PRECISION(17));
    ck_assert_ptr_nonnull(text);
    return text;
}

void expect_same(const char *what, const json_t *got, const json_t *want, const char *name)
{
    char *a = exact_text(got, name), *b = exact_text(want, name);
    ck_assert_msg(a[0] != '\0' && strcmp(a, b) == 0, "%s: %s is %.300s, expected %.300s", what,
                  name, a, b);
    free(a);
    free(b);
}
