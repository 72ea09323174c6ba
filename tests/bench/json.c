/* json.c: nanoseconds per number of reading and writing tensors as JSON text, beside strtof,
 * jansson and "%.9g".
 *
 * Alternatives take turns, and the best of several rounds counts: the machine's other work only
 * adds time. */
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "wire/tensor.h"

struct sample {
    size_t count;
    float *numbers; /* [count] normally distributed */
    char *text;     /* the same as a JSON array, NUL-terminated */
    size_t length;
};

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static double uniform(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return ((double)(*state >> 11) + 1) * 0x1p-53;
}

static void make_sample(struct sample *s, size_t count, int digits)
{
    uint64_t state = 42;
    size_t size = count * 32 + 2, at = 0;
    s->count = count;
    s->numbers = malloc(count * sizeof *s->numbers);
    s->text = malloc(size);
    if (s->numbers == NULL || s->text == NULL)
        exit(EXIT_FAILURE);
    for (size_t i = 0; i < count; i++) {
        double x = sqrt(-2 * log(uniform(&state))) * cos(6.283185307179586 * uniform(&state));
        s->numbers[i] = (float)x;
        at += (size_t)snprintf(s->text + at, size - at, "%c%.*g", i == 0 ? '[' : ',', digits, x);
    }
    s->length = at + (size_t)snprintf(s->text + at, size - at, "]");
}

static void free_sample(struct sample *s)
{
    free(s->numbers);
    free(s->text);
}

/* ---- Alternatives: each processes a sample once and returns a number from it ---------- */

static double read_ours(const struct sample *s)
{
    struct srv_json json;
    struct srv_arena arena;
    struct srv_error error;
    struct srv_tensor tensor;
    srv_arena_init(&arena, 64 * s->count + 65536, NULL, NULL);
    srv_json_init(&json, s->text, s->length, &error);
    if (!srv_tensor_read_json(&tensor, &json, &arena, SRV_FLOATS, false, "x"))
        exit(EXIT_FAILURE);
    double last = (double)tensor.f32[tensor.count - 1];
    srv_arena_fini(&arena);
    return last;
}

static double read_strtof(const struct sample *s)
{
    char *at = s->text + 1;
    double sum = 0;
    for (size_t i = 0; i < s->count; i++, at++)
        sum += (double)strtof(at, &at);
    return sum;
}

static double read_jansson(const struct sample *s)
{
    json_t *array = json_loadb(s->text, s->length, 0, NULL);
    double last = json_number_value(json_array_get(array, s->count - 1));
    json_decref(array);
    return last;
}

static double write_ours(const struct sample *s)
{
    struct srv_buffer buffer;
    srv_buffer_init(&buffer, 32 * s->count + 65536);
    srv_tensor_write_json(&buffer, s->numbers, &s->count, 1);
    double length = (double)buffer.length;
    srv_buffer_fini(&buffer);
    return length;
}

static double write_printf(const struct sample *s)
{
    char text[32];
    double length = 0;
    for (size_t i = 0; i < s->count; i++)
        length += snprintf(text, sizeof text, "%.9g,", (double)s->numbers[i]);
    return length;
}

static double write_jansson(const struct sample *s)
{
    json_t *array = json_array();
    for (size_t i = 0; i < s->count; i++)
        json_array_append_new(array, json_real((double)s->numbers[i]));
    char *text = json_dumps(array, JSON_COMPACT | JSON_REAL_PRECISION(9));
    double length = text == NULL ? 0 : (double)strlen(text);
    free(text);
    json_decref(array);
    return length;
}

static const struct way {
    const char *name;
    double (*run)(const struct sample *s);
} reading[] = {{"attnd", read_ours}, {"strtof", read_strtof}, {"jansson", read_jansson}},
  writing[] = {{"attnd", write_ours}, {"%.9g", write_printf}, {"jansson", write_jansson}};
#define WAYS 3

static void measure(const char *title, const struct way ways[WAYS], const struct sample *s)
{
    double best[WAYS] = {INFINITY, INFINITY, INFINITY};
    volatile double sink = 0;
    size_t rounds = s->count < 100000 ? 200 : 5;
    for (size_t round = 0; round < rounds; round++)
        for (size_t i = 0; i < WAYS; i++) {
            double start = now_ns();
            sink = sink + ways[i].run(s);
            best[i] = fmin(best[i], (now_ns() - start) / (double)s->count);
        }
    printf("%-20s %8zu numbers", title, s->count);
    for (size_t i = 0; i < WAYS; i++)
        printf("   %s %.1f", ways[i].name, best[i]);
    printf("   ns a number\n");
}

int main(void)
{
    static const size_t counts[] = {4096, 1000000};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct sample sample;
        make_sample(&sample, counts[i], 17);
        measure("read, 17 digits", reading, &sample);
        measure("write", writing, &sample);
        free_sample(&sample);
        make_sample(&sample, counts[i], 9);
        measure("read, 9 digits", reading, &sample);
        free_sample(&sample);
    }
    return EXIT_SUCCESS;
}
