/* largest.c: the k largest by a heap of the k best so far, its worst at the root, in the caller's
 * arrays.
 *
 * "Better" means a larger value, or an equal value and a lower index.  This order is total, so the
 * result does not depend on how entries moved in the heap.  Taking the root out k times leaves the
 * arrays sorted. */
#include "kernels/stats.h"

#include <stdbool.h>

#define PAUSE_STEPS 4096 /* heap operations between two pauses: some 0.3 ms */

struct heap {
    uint32_t *index;
    float *value;
    size_t size;
};

static bool worse(const struct heap *heap, size_t a, size_t b)
{
    if (heap->value[a] != heap->value[b])
        return heap->value[a] < heap->value[b];
    return heap->index[a] > heap->index[b];
}

static void swap(struct heap *heap, size_t a, size_t b)
{
    uint32_t index = heap->index[a];
    float value = heap->value[a];
    heap->index[a] = heap->index[b];
    heap->value[a] = heap->value[b];
    heap->index[b] = index;
    heap->value[b] = value;
}

/* Moves entry `at` down until no entry below it is worse. */
static void sift_down(struct heap *heap, size_t at)
{
    for (;;) {
        size_t left = 2 * at + 1, right = left + 1, worst = at;
        if (left < heap->size && worse(heap, left, worst))
            worst = left;
        if (right < heap->size && worse(heap, right, worst))
            worst = right;
        if (worst == at)
            return;
        swap(heap, at, worst);
        at = worst;
    }
}

/* Pauses before every PAUSE_STEPS-th step i of a loop. */
static void pause_at(struct attn_pool *pool, unsigned thread, size_t i)
{
    if (pool != NULL && i % PAUSE_STEPS == 0)
        attn_pool_pause(pool, thread);
}

void attn_largest(uint32_t *index, float *value, size_t k, const float *values, size_t n,
                  struct attn_pool *pool, unsigned thread)
{
    struct heap heap = {index, value, k};
    for (size_t i = 0; i < k; i++) {
        index[i] = (uint32_t)i;
        value[i] = values[i];
    }
    for (size_t at = k / 2; at-- > 0;) {
        pause_at(pool, thread, at);
        sift_down(&heap, at);
    }
    for (size_t i = k; i < n; i++) {
        pause_at(pool, thread, i);
        if (!(values[i] > value[0])) /* an equal value has a higher index */
            continue;
        index[0] = (uint32_t)i;
        value[0] = values[i];
        sift_down(&heap, 0);
    }
    while (heap.size > 1) {
        heap.size--;
        pause_at(pool, thread, heap.size);
        swap(&heap, 0, heap.size);
        sift_down(&heap, 0);
    }
}
