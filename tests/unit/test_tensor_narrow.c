/* test_tensor_narrow.c: floats as halves and as bytes of a range, against arithmetic in double. */
#include <check.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "half.h"
#include "rng.h"
#include "suites.h"
#include "wire/tensor.h"

static struct srv_buffer out;

static void setup(void) { srv_buffer_init(&out, (size_t)1 << 24); }
static void teardown(void) { srv_buffer_fini(&out); }

static void write_maps(const float *maps, size_t count, size_t size, enum srv_map_datatype type)
{
    const struct srv_output_tensor tensor = {.element_bytes = type == SRV_MAP_FP16 ? 2 : 1,
                                             .narrow = type,
                                             .data = maps,
                                             .count = count * size,
                                             .shape = {count, 1, size},
                                             .rank = 3};
    out.length = 0;
    srv_output_write_bytes(&out, &tensor);
    ck_assert(!out.failed);
}

/* ---- Halves ---------------------------------------------------------------------------------- */

static uint16_t half_of(float x)
{
    uint16_t half;
    write_maps(&x, 1, 1, SRV_MAP_FP16);
    ck_assert_uint_eq(out.length, sizeof half);
    memcpy(&half, out.data, sizeof half);
    return half;
}

static void expect_half(float x, uint16_t want)
{
    ck_assert_msg(half_of(x) == want, "%.9g is %04x, expected %04x", (double)x, half_of(x), want);
    ck_assert_msg(half_of(-x) == (want | 0x8000), "-%.9g is %04x", (double)x, half_of(-x));
}

CASE(narrow, setup, teardown, 0)

TEST(every_half_and_what_lies_between_two_rounds_to_the_nearest_ties_to_even)
{
    for (uint16_t half = 0; half < 0x7bff; half++) {
        double low = half_value(half), high = half_value((uint16_t)(half + 1));
        float tie = (float)((low + high) / 2); /* exact: a half has 13 bits less than a float */
        expect_half((float)low, half);
        expect_half(nextafterf(tie, 0), half);
        expect_half(tie, (uint16_t)(half + (half & 1)));
        expect_half(nextafterf(tie, FLT_MAX), (uint16_t)(half + 1));
    }
}

TEST(halves_end_at_65504_and_keep_minus_infinity)
{
    expect_half(65504, 0x7bff);
    expect_half(65519.996f, 0x7bff);
    expect_half(65520, 0x7bff); /* would be an infinity */
    expect_half(FLT_MAX, 0x7bff);
    expect_half(INFINITY, 0x7c00);
    expect_half(FLT_TRUE_MIN, 0);
    ck_assert_uint_eq(half_of(-INFINITY), 0xfc00);
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

/* The lists of both ends of maps, as text: "minimum maximum". */
static const char *ranges_of(const float *maps, unsigned rank, const size_t shape[4], bool flat)
{
    static char text[128];
    struct srv_output_tensor tensor = {.narrow = SRV_MAP_UINT8, .data = maps, .rank = rank};
    memcpy(tensor.shape, shape, rank * sizeof *shape);
    out.length = 0;
    srv_output_write_ranges(&out, &tensor, flat);
    srv_buffer_append(&out, "", 1);
    const char *minimum = strstr(out.data, ",\"minimum\":"), *maximum;
    ck_assert_ptr_eq(minimum, out.data);
    minimum += strlen(",\"minimum\":");
    ck_assert_ptr_nonnull(maximum = strstr(minimum, ",\"maximum\":"));
    snprintf(text, sizeof text, "%.*s %s", (int)(maximum - minimum), minimum,
             maximum + strlen(",\"maximum\":"));
    return text;
}

TEST_EACH(bytes_are_the_nearest_of_each_maps_range, 12)
{
    struct rng rng = rng_seeded((unsigned)_i + 1);
    const size_t count = 1 + rng_below(&rng, 5), size = 1 + rng_below(&rng, 20000);
    float *maps = rng_floats(&rng, count * size, _i % 3 == 0 ? 1e-30f : _i % 3 == 1 ? 1 : 1e38f);
    for (size_t i = 0; _i % 2 == 0 && i < count * size; i++)
        maps[i] = fabsf(maps[i]); /* weights, whose range begins at 0 */
    write_maps(maps, count, size, SRV_MAP_UINT8);
    ck_assert_uint_eq(out.length, count * size);
    for (size_t m = 0; m < count; m++) {
        const float *map = maps + m * size;
        const struct srv_map_range range = srv_map_range(map, size);
        double least = 0, most = 0;
        for (size_t i = 0; i < size; i++) {
            least = fmin(least, (double)map[i]);
            most = fmax(most, (double)map[i]);
        }
        ck_assert((double)range.minimum == least && (double)range.maximum == most);
        for (size_t i = 0; i < size; i++) {
            double step = (most - least) / 255;
            double value = least + step * (uint8_t)out.data[m * size + i];
            ck_assert_msg(fabs(value - (double)map[i]) <= step * 0.500001, "%zu: %g for %g", i,
                          value, (double)map[i]);
        }
    }
    free(maps);
}

TEST(ends_and_empty_ranges_of_bytes)
{
    static const float maps[] = {0, 0, 0, 0.25f, -2, 6, -1, -3};
    static const unsigned char want[] = {0, 0, 0, 255, 0, 255, 170, 0};
    write_maps(maps, 4, 2, SRV_MAP_UINT8);
    ck_assert_uint_eq(out.length, sizeof want);
    ck_assert_mem_eq(out.data, want, sizeof want);
    const size_t four[4] = {4, 1, 2}, pairs[4] = {2, 2, 1, 2}, one[4] = {1, 8};
    ck_assert_str_eq(ranges_of(maps, 3, four, false), "[0,0,-2,-3] [0,0.25,6,0]");
    ck_assert_str_eq(ranges_of(maps, 4, pairs, true), "[0,0,-2,-3] [0,0.25,6,0]");
    ck_assert_str_eq(ranges_of(maps, 4, pairs, false), "[[0,0],[-2,-3]] [[0,0.25],[6,0]]");
    ck_assert_str_eq(ranges_of(maps, 2, one, false), "-3 6");
}

SUITE(tensor_narrow)
