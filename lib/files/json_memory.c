/* json_memory.c: jansson's allocator and its reserve.
 *
 * jansson passes no context to its allocator, so the reserve is the thread's; it exists only while
 * attn_json_load runs. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>

#include "attn_json.h"
#include "basics/mem.h"

/* Bytes of heap that jansson takes for a byte of text, rounded up: 79 for a tree at most, 5 for a
 * token. */
#define TREE_FACTOR 128
#define TOKEN_FACTOR 8
#define BASE_BYTES 8192 /* added for a text of any length */
#define ALIGNMENT 16

static _Thread_local struct {
    char *bytes; /* NULL: there is no reserve */
    size_t size, used;
} reserve;

static void *reserve_malloc(size_t bytes)
{
    void *memory = malloc(bytes);
    size_t rounded = attn_ceil_div(bytes, ALIGNMENT) * ALIGNMENT;
    if (memory != NULL || rounded < bytes || rounded > reserve.size - reserve.used)
        return memory;
    memory = reserve.bytes + reserve.used;
    reserve.used += rounded;
    return memory;
}

static void reserve_free(void *memory)
{
    uintptr_t at = (uintptr_t)memory, begin = (uintptr_t)reserve.bytes;
    if (at < begin || at - begin >= reserve.size)
        free(memory);
}

void attn_json_set_allocator(void) { json_set_alloc_funcs(reserve_malloc, reserve_free); }

enum attn_status attn_json_load(json_t **out, const char *text, size_t length, size_t flags,
                                json_error_t *why)
{
    enum attn_status status = ATTN_NO_MEMORY;
    const bool token = length > 0 && text[0] == '"';
    const size_t size = attn_add(attn_mul(length, token ? TOKEN_FACTOR : TREE_FACTOR), BASE_BYTES);
    char *bytes = malloc(size);
    *out = NULL;
    if (bytes == NULL)
        return status;
    reserve.bytes = bytes;
    reserve.size = size;
    json_t *read = json_loadb(text, length, flags, why);
    if (reserve.used == 0 && read != NULL)
        status = ATTN_OK;
    else if (reserve.used == 0 && json_error_code(why) != json_error_out_of_memory)
        status = ATTN_MALFORMED;
    if (status == ATTN_OK)
        *out = read;
    else
        json_decref(read);
    reserve.bytes = NULL;
    reserve.size = reserve.used = 0;
    free(bytes);
    return status;
}
