/* tensor_narrow.h: maps of floats as bytes of replies in fewer bits: halves, or bytes between the
 * smallest and the largest number of each map. */
#ifndef SRV_TENSOR_NARROW_H
#define SRV_TENSOR_NARROW_H

#include <stddef.h>

#include "base/buffer.h"

/* How the numbers of maps travel in binary form: the values of the field map_datatype. */
enum srv_map_datatype { SRV_MAP_FP32, SRV_MAP_FP16, SRV_MAP_UINT8, SRV_MAP_DATATYPES };

/* "FP32", "FP16", "UINT8", as the Open Inference Protocol names them. */
extern const char *const srv_map_datatypes[SRV_MAP_DATATYPES];

/* The range of a map's bytes: byte k stands for minimum + (maximum - minimum) k / 255.  0 is
 * within the range. */
struct srv_map_range {
    float minimum, maximum; /* min(0, smallest), max(0, largest) */
};
struct srv_map_range srv_map_range(const float *map, size_t count);

/* Maps of a reply, and how lists of a number for each are nested. */
struct srv_map_list {
    const float *maps; /* [count][size] */
    size_t count, size;
    size_t inner; /* numbers of an innermost list; 0: the only number stands without a list */
    bool nested;  /* these lists are in a list */
};

/* Appends the minimum, or the maximum, of each map's range.  All numbers are finite. */
void srv_map_ranges_write(struct srv_buffer *out, const struct srv_map_list *list, bool maximum);

/* Appends the elements of the maps.  FP16: rounded to nearest, ties to even, finite numbers beyond
 * 65504 to that, minus infinity as it is.  UINT8: to the nearest byte of each map's range; all are
 * finite. */
void srv_map_write(struct srv_buffer *out, const struct srv_map_list *list,
                   enum srv_map_datatype type);

#endif
