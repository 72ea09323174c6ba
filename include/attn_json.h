/* attn_json.h: reading JSON with jansson, also when memory runs out.
 *
 * jansson 2.14 does not survive a failed allocation while it gathers a token: it loses characters,
 * then reads and writes beyond the token's end, or takes another number for the one that was
 * written.  In a program that has called attn_json_set_allocator() jansson never sees a failure
 * while it reads: what malloc refuses comes out of a reserve that was taken before, and the value
 * that was read with its help is thrown away.
 *
 * The header is shared with the daemon and is not installed. */
#ifndef ATTN_JSON_H
#define ATTN_JSON_H

#include "attn.h"

struct json_t; /* jansson's */
struct json_error_t;

/* Sets jansson's allocator for the whole program; outside attn_json_load it behaves as malloc and
 * free.  To be called once, before threads are started. */
void attn_json_set_allocator(void);

/* Parses `length` bytes of text as json_loadb does, with its flags, and keeps a wrong text apart
 * from a lack of memory.  *out is the caller's to json_decref, NULL unless ATTN_OK is returned.
 * Any thread: the reserve is the thread's.
 * Cost: while the call runs the reserve takes 128 bytes for each byte of text, 8 where the text is
 * a string.
 * Errors: ATTN_MALFORMED with *why filled, ATTN_NO_MEMORY. */
enum attn_status attn_json_load(struct json_t **out, const char *text, size_t length, size_t flags,
                                struct json_error_t *why);

#endif
