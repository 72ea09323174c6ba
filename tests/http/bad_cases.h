/* bad_cases.h: requests that must be refused, each with what the refusal is. */
#ifndef TESTS_HTTP_BAD_CASES_H
#define TESTS_HTTP_BAD_CASES_H

#include <stdbool.h>
#include <stddef.h>

#include "text.h"

/* The daemon they are sent to has the models `tiny` and `plain`, the session `witness` of `tiny`
 * and these limits. */
#define BAD_LIMITS                                                                               \
    "\"max_tokens\":64,\"max_sequences\":4,\"max_body_bytes\":262144,\"max_reply_bytes\":65536," \
    "\"header_timeout_ms\":3000,\"body_timeout_ms\":3000,"

/* A request that is good HTTP. */
struct bad_case {
    const char *name;
    const char *path; /* POST, unless a space separates another method: "GET /decode" */
    const char *body; /* NULL: none */
    unsigned status;
    const char *code;
    const char *header;              /* one more header field, or NULL */
    void (*make)(struct text *body); /* instead of body, for those too long to write down */
};

extern const struct bad_case bad_cases[];
extern const size_t bad_case_count;

/* A call in binary form. */
struct bad_binary {
    const char *name, *path, *json;
    const char *bytes; /* behind the JSON; NULL: zeros */
    size_t length;     /* of them */
    unsigned status;
    const char *code;
    const char *header;  /* the whole field that says where the JSON ends, "" for none; NULL: the
                            right one */
    const char *another; /* one more header field, or NULL */
};

extern const struct bad_binary bad_binaries[];
extern const size_t bad_binary_count;

/* What becomes of the connection behind the answer; an open one is not looked at any more. */
enum bad_after { BAD_CLOSED, BAD_OPEN };

/* Bytes that are no good HTTP. */
struct bad_frame {
    const char *name;
    const char *bytes;
    size_t length;
    unsigned status; /* of the answer; 0: the connection ends without one, or with 408 where the end
                         of what was sent goes unnoticed until the deadline */
    const char *code; /* NULL: libmicrohttpd answers by itself, with a bare page */
    enum bad_after after;
    bool half_close; /* the sender ends its side behind the bytes */
    bool second;     /* a good request comes first, and is answered 200 */
    void (*make)(struct text *bytes);
};

extern const struct bad_frame bad_frames[];
extern const size_t bad_frame_count;

/* What a frame smuggles: a step of the witness, BAD_STEP_LENGTH bytes long, so that a daemon that
 * took it would be found out by the witness's length. */
#define BAD_STEP                                      \
    "{\"model\":\"tiny\",\"session_id\":\"witness\"," \
    "\"hidden_states\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}           "
#define BAD_STEP_LENGTH "100"

#endif
