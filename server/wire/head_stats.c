/* head_stats.c: targets and groups of keys from a body; objects of statistics in a reply.
 *
 * Groups become a table of one word of bits for each key, so that measuring a row goes over its
 * keys once however many groups there are. */
#include "wire/outputs.h"

#include "base/number.h"

/* ---- Reading ---- */

static enum srv_error_code read_groups(struct attn_outputs *out,
                                       const struct srv_index_lists *lists, size_t keys,
                                       struct srv_arena *arena, struct srv_error *error)
{
    uint16_t *groups = srv_arena_alloc(arena, keys, sizeof *groups);
    if (groups == NULL)
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, "target_groups", "no memory for target_groups");
    memset(groups, 0, keys * sizeof *groups);
    out->target_groups = groups;
    out->num_target_groups = lists->count;
    for (size_t g = 0; g < lists->count; g++)
        for (size_t i = 0; i < lists->lists[g].count; i++) {
            const int64_t key = lists->lists[g].i64[i];
            if (key < 0 || (uint64_t)key >= keys)
                return srv_fail(error, SRV_E_NUMBER_OUT_OF_RANGE, "target_groups",
                                "target_groups[%zu][%zu] is %lld, there are keys 0 to %zu in this "
                                "call",
                                g, i, (long long)key, keys - 1);
            if ((groups[key] >> g & 1) != 0)
                return srv_fail(error, SRV_E_NUMBER_OUT_OF_RANGE, "target_groups",
                                "target_groups[%zu][%zu] repeats %lld", g, i, (long long)key);
            groups[key] = (uint16_t)(groups[key] | 1u << g);
        }
    return SRV_OK;
}

enum srv_error_code srv_head_stats_read(struct attn_outputs *out, const struct srv_rows *rows,
                                        const struct srv_sizes *sizes, struct srv_arena *arena,
                                        struct srv_error *error)
{
    const void *targets;
    if (srv_per_sequence_read(&targets, &rows->targets, "targets", sizes->batch, sizes->queries,
                              arena, error) != SRV_OK)
        return error->code;
    out->targets = targets;
    return rows->target_groups.count > 0
               ? read_groups(out, &rows->target_groups, sizes->keys, arena, error)
               : SRV_OK;
}

/* ---- Writing ---- */

/* Bytes charged for the text of a head's statistics, at most 310 and 36 of ablation, and for what
 * may follow. */
#define STATS_TEXT 350
#define TARGET_TEXT 120
#define GROUPS_TEXT 20
#define GROUP_TEXT (2 * SRV_NUMBER_MAX + 32)

size_t srv_head_stats_text(const struct attn_outputs *outputs)
{
    return STATS_TEXT + (outputs->targets != NULL ? TARGET_TEXT : 0) +
           (outputs->num_target_groups > 0 ? GROUPS_TEXT : 0) +
           outputs->num_target_groups * GROUP_TEXT;
}

/* Appends `before`, which ends with a member's name, and a number. */
static void write_number(struct srv_buffer *out, const char *before, double number)
{
    float value = (float)number;
    srv_buffer_text(out, before);
    srv_tensor_write_json(out, &value, NULL, 0);
}

static void write_count(struct srv_buffer *out, const char *before, size_t count)
{
    srv_buffer_text(out, before);
    srv_buffer_unsigned(out, count, 1);
}

/* Appends the statistics at `index`, counted through all heads of the batch: those of `head`. */
static void write_head(struct srv_buffer *out, const struct attn_outputs *outputs, size_t index,
                       size_t head)
{
    const struct attn_head_stats *stats = &outputs->head_stats[index];
    const struct {
        const char *before;
        double value;
    } numbers[] = {
        {",\"entropy\":", stats->entropy}, {",\"mean_distance\":", stats->mean_distance},
        {",\"self\":", stats->self},       {",\"previous\":", stats->previous},
        {",\"first\":", stats->first},     {",\"local\":", stats->local},
        {",\"largest\":", stats->largest},
    };
    const size_t groups = outputs->num_target_groups;
    write_count(out, "{\"head\":", head);
    srv_buffer_text(out, ",\"pattern\":");
    srv_buffer_json_string(out, attn_pattern_name(stats->pattern));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        write_number(out, numbers[i].before, numbers[i].value);
    write_count(out, ",\"rows\":", stats->rows);
    if (outputs->targets != NULL) {
        write_number(out, ",\"target\":", stats->target);
        write_number(out, ",\"target_hits\":", stats->target_hits);
        write_count(out, ",\"target_rows\":", stats->target_rows);
    }
    if (outputs->ablation != NULL)
        write_number(out, ",\"ablation\":", outputs->ablation[index]);
    for (size_t g = 0; g < groups; g++) {
        const struct attn_group_stats *group = &outputs->group_stats[index * groups + g];
        write_number(out, g > 0 ? ",{\"share\":" : ",\"groups\":[{\"share\":", group->share);
        write_number(out, ",\"hits\":", group->hits);
        srv_buffer_text(out, "}");
    }
    srv_buffer_text(out, groups > 0 ? "]}" : "}");
}

void srv_head_stats_write(struct srv_buffer *out, const struct attn_outputs *outputs,
                          const struct srv_sizes *sizes)
{
    const struct attn_selection *selection = &outputs->selection;
    size_t count = selection->heads ? selection->num_heads : sizes->num_heads;
    srv_buffer_text(out, sizes->batched ? "[[" : "[");
    for (size_t b = 0; b < sizes->batch; b++) {
        srv_buffer_text(out, b > 0 ? "],[" : "");
        for (size_t i = 0; i < count; i++) {
            size_t head = selection->heads ? selection->heads[i] : i;
            srv_buffer_text(out, i > 0 ? "," : "");
            write_head(out, outputs, b * sizes->num_heads + head, head);
        }
    }
    srv_buffer_text(out, sizes->batched ? "]]" : "]");
}
