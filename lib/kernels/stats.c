/* stats.c: entropy, distance and shares of rows of attention weights, and the pattern of a head.
 *
 * A pattern is recognised by its lift, (share - chance) / (1 - chance), where `share` is the mean
 * weight that a head gives to certain keys (the previous one, the first, the near ones).  `chance`
 * is the share of a head that spreads its weight evenly over the keys that causality and padding
 * leave each row.  An even head therefore has lift 0 and no pattern but global. */
#include "kernels/stats.h"

#include <math.h>
#include <stdlib.h>

#define LIFT_MIN 0.5          /* a head with at least this lift has the pattern */
#define LIFT_ROOM_MIN 0.01    /* with a smaller 1 - chance a share says nothing */
#define POSITIONAL_ROWS_MIN 2 /* rows, besides a majority, that must agree on a distance */

/* ---- One row ---- */

/* The weight of key `at` and its chance; both 0 where the key is not reachable. */
static void weight_at(float *share, float *chance, const float *weights, const uint8_t *reachable,
                      size_t n, int64_t at, size_t reached)
{
    bool there = at >= 0 && at < (int64_t)n && reachable[at];
    *share = there ? weights[at] : 0;
    *chance = there ? 1.0f / (float)reached : 0;
}

void attn_stats_row(struct attn_row_stats *out, const float *weights, const uint8_t *reachable,
                    size_t n, int64_t query, size_t first, size_t local_radius)
{
    size_t reached = 0, near = 0;
    double entropy = 0, distance = 0, local = 0;
    *out = (struct attn_row_stats){0};
    for (size_t j = 0; j < n; j++) {
        if (!reachable[j])
            continue;
        float w = weights[j];
        size_t away = (size_t)llabs(query - (int64_t)j);
        if (reached++ == 0 || w > out->largest) {
            out->strongest = (uint32_t)j;
            out->largest = w;
        }
        if (w > 0)
            entropy -= (double)w * (double)logf(w);
        distance += (double)w * (double)away;
        if (away <= local_radius) {
            near++;
            local += (double)w;
        }
    }
    if (reached == 0)
        return;
    out->reachable = (uint32_t)reached;
    out->entropy = (float)entropy;
    out->distance = (float)distance;
    out->local = (float)local;
    out->chance_local = (float)near / (float)reached;
    weight_at(&out->self, &out->chance_self, weights, reachable, n, query, reached);
    weight_at(&out->previous, &out->chance_previous, weights, reachable, n, query - 1, reached);
    weight_at(&out->first, &out->chance_first, weights, reachable, n, (int64_t)first, reached);
}

void attn_stats_add_keys(double sums[ATTN_MAX_TARGET_GROUPS], const float *weights,
                         const uint16_t *groups, size_t n)
{
    for (size_t j = 0; j < n; j++)
        for (unsigned left = groups[j]; left != 0; left &= left - 1)
            sums[__builtin_ctz(left)] += (double)weights[j];
}

/* ---- The pattern ---- */

/* A share of weight, and its chance, each summed over rows. */
struct share {
    double weight, chance;
};

static void add_share(struct share *sum, float weight, float chance)
{
    sum->weight += (double)weight;
    sum->chance += (double)chance;
}

static bool lifted(const struct share *sum, size_t rows)
{
    double room = 1 - sum->chance / (double)rows;
    return room >= LIFT_ROOM_MIN && (sum->weight - sum->chance) / (double)rows / room >= LIFT_MIN;
}

/* Whether a row says something about its head: one that reaches a single key must give it all. */
static bool is_telling(const struct attn_row_stats *row) { return row->reachable > 1; }

/* The distance of row t's query from its strongest key. */
static int64_t strongest_distance(const struct attn_row_stats *rows, size_t t, int64_t query)
{
    return query + (int64_t)t - (int64_t)rows[t].strongest;
}

/* Whether in most of the telling rows the strongest key is at the same distance.  The first loop
 * finds the only candidate for a majority (Boyer and Moore 1981), the second counts its rows. */
static bool is_positional(const struct attn_row_stats *rows, size_t count, int64_t query,
                          size_t telling)
{
    size_t votes = 0, agreeing = 0;
    int64_t candidate = 0;
    for (size_t t = 0; t < count; t++) {
        if (!is_telling(&rows[t]))
            continue;
        if (votes == 0)
            candidate = strongest_distance(rows, t, query);
        votes = strongest_distance(rows, t, query) == candidate ? votes + 1 : votes - 1;
    }
    for (size_t t = 0; t < count; t++)
        agreeing += is_telling(&rows[t]) && strongest_distance(rows, t, query) == candidate;
    return agreeing >= POSITIONAL_ROWS_MIN && 2 * agreeing > telling;
}

static enum attn_pattern find_pattern(const struct attn_row_stats *rows, size_t count,
                                      int64_t query)
{
    struct share previous = {0}, first = {0}, local = {0}, largest = {0};
    size_t telling = 0;
    for (size_t t = 0; t < count; t++) {
        const struct attn_row_stats *row = &rows[t];
        if (!is_telling(row))
            continue;
        telling++;
        add_share(&previous, row->previous, row->chance_previous);
        add_share(&first, row->first, row->chance_first);
        add_share(&local, row->local, row->chance_local);
        add_share(&largest, row->largest, 1.0f / (float)row->reachable);
    }
    if (telling == 0)
        return ATTN_PATTERN_GLOBAL;
    if (lifted(&previous, telling))
        return ATTN_PATTERN_PREVIOUS;
    if (lifted(&first, telling))
        return ATTN_PATTERN_SINK;
    bool sharp = lifted(&largest, telling);
    if (sharp && is_positional(rows, count, query, telling))
        return ATTN_PATTERN_POSITIONAL;
    if (lifted(&local, telling))
        return ATTN_PATTERN_LOCAL;
    return sharp ? ATTN_PATTERN_FOCUSED : ATTN_PATTERN_GLOBAL;
}

const char *attn_pattern_name(enum attn_pattern pattern)
{
    static const char *const names[] = {
        [ATTN_PATTERN_GLOBAL] = "global", [ATTN_PATTERN_PREVIOUS] = "previous",
        [ATTN_PATTERN_SINK] = "sink",     [ATTN_PATTERN_POSITIONAL] = "positional",
        [ATTN_PATTERN_LOCAL] = "local",   [ATTN_PATTERN_FOCUSED] = "focused",
    };
    size_t i = (size_t)pattern;
    return i < sizeof names / sizeof names[0] ? names[i] : "unknown";
}

/* ---- A head ---- */

void attn_stats_reduce_targets(struct attn_head_stats *out, const struct attn_row_stats *rows,
                               size_t count, const int64_t *targets)
{
    size_t hits = 0;
    for (size_t t = 0; t < count; t++) {
        if (rows[t].reachable == 0 || targets[t] < 0)
            continue;
        out->target_rows++;
        out->target += (double)rows[t].target;
        hits += rows[t].strongest == targets[t];
    }
    if (out->target_rows == 0)
        return;
    out->target /= (double)out->target_rows;
    out->target_hits = (double)hits / (double)out->target_rows;
}

void attn_stats_reduce(struct attn_head_stats *out, const struct attn_row_stats *rows, size_t count,
                       int64_t query)
{
    *out = (struct attn_head_stats){0};
    double *sums[] = {&out->entropy, &out->mean_distance, &out->self,   &out->previous,
                      &out->first,   &out->local,         &out->largest};
    for (size_t t = 0; t < count; t++) {
        const struct attn_row_stats *row = &rows[t];
        const float values[] = {row->entropy, row->distance, row->self,   row->previous,
                                row->first,   row->local,    row->largest};
        for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++)
            *sums[i] += (double)values[i]; /* all are 0 in a row that sees no key */
        out->rows += row->reachable > 0;
    }
    for (size_t i = 0; i < sizeof sums / sizeof sums[0] && out->rows > 0; i++)
        *sums[i] /= (double)out->rows;
    out->pattern = find_pattern(rows, count, query);
}

void attn_stats_add_rows(struct attn_group_stats *sums, const struct attn_row_stats *rows,
                         const float *shares, size_t count, const uint16_t *groups,
                         size_t num_groups)
{
    for (size_t t = 0; t < count; t++) {
        if (rows[t].reachable == 0)
            continue;
        for (size_t g = 0; g < num_groups; g++) {
            sums[g].share += (double)shares[t * num_groups + g];
            sums[g].hits += groups[rows[t].strongest] >> g & 1;
        }
    }
}
