/* attn_json.h: reading JSON with jansson, also when memory runs out.
 *
 * Where an allocation fails while jansson 2.14 gathers a token it loses characters, then reads and
 * writes beyond the token's end, or takes another number for the one that was written.  So a
 * program that has called attn_json_set_allocator() has jansson never see a failure while it reads:
 * what malloc refuses comes out of a reserve that was taken before, and what was read is thrown
 * away. */
#ifndef ATTN_JSON_H
#define ATTN_JSON_H

#include "attn.h"

struct json_t; /* jansson's */
struct json_error_t;

/* Sets jansson's allocator, for the whole program: it behaves as malloc and free.  Once, before
 * threads are started. */
void attn_json_set_allocator(void);

/* json_loadb, telling what is wrong from what there was no memory to read: ATTN_OK, ATTN_MALFORMED
 * with *why, or ATTN_NO_MEMORY.  *out is the caller's to json_decref; NULL without ATTN_OK.  Takes,
 * and gives back, a reserve of 128 times the text, of 8 times where that is a string. */
enum attn_status attn_json_load(struct json_t **out, const char *text, size_t length, size_t flags,
                                struct json_error_t *why);

#endif
