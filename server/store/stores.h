/* stores.h: all stores of a daemon: its own, and those of the directories that it has adopted.
 *
 * Each store has a directory with a lock, journals and snapshots of its own, so that a directory
 * can be given back and served elsewhere.  A session is kept by one of them (struct srv_session's
 * `store`), and calls of store.h that take a session go to that one: the daemon hands the own store
 * around.  Snapshots are made of all.  Each call takes NULL, where nothing is kept, but describe
 * and request. */
#ifndef SRV_STORES_H
#define SRV_STORES_H

#include "store/store.h"

/* Opens the own store and those of the directories of `adopt`, names separated by commas; NULL:
 * none.  An adopted directory must be there, with its identity, and may be that of no other store.
 * As srv_store_open otherwise. */
bool srv_stores_open(struct srv_store **out, const struct srv_store_context *context,
                     const char *adopt, char *message, size_t size);

/* As the calls of one store in store.h, for all. */
bool srv_stores_load(struct srv_store *own, char *message, size_t size);
bool srv_stores_start(struct srv_store *own, char *message, size_t size);
bool srv_stores_close(struct srv_store *own);
bool srv_stores_want_snapshot(const struct srv_store *own);
void srv_stores_take_snapshot(struct srv_store *own);
size_t srv_stores_unread(const struct srv_store *own);
size_t srv_stores_restoring(const struct srv_store *own);

/* Bytes of blocks in all directories, and of the disk that their files take. */
void srv_stores_count_blocks(size_t *used, size_t *held, const struct srv_store *own);
size_t srv_stores_waited_s(const struct srv_store *own); /* the longest */
bool srv_stores_have_restored(struct srv_store *own);
bool srv_stores_take_restored(struct srv_store *own);

/* ---- Room in the pool (evict.c), the engine thread's -------------------------------------------
 *
 * Where memory is short, sessions that nobody uses leave it, once a snapshot has written what is
 * new of them. */

enum srv_room {
    SRV_ROOM_NOW,   /* the pool has room */
    SRV_ROOM_LATER, /* it will: a snapshot is due, or runs, or sessions are in use */
    SRV_ROOM_NEVER, /* nothing can leave */
};

/* Makes room for that many bytes for a session, which stays; NULL: for one that is read. */
enum srv_room srv_stores_make_room(struct srv_store *own, size_t bytes,
                                   const struct srv_session *whose);

/* Makes room for which reading threads wait. */
void srv_stores_answer_readers(struct srv_store *own);

/* Of the own store, with the journals of all; `base` stays below a generation that was asked for
 * until every store has its snapshot. */
void srv_stores_describe(struct srv_store_status *out, struct srv_store *own);
void srv_stores_request_snapshot(struct srv_store_status *out, struct srv_store *own);

/* The descriptors of the directories, the own one first; returns how many. */
size_t srv_stores_directories(int out[SRV_MAX_ADOPTED + 1], const struct srv_store *own);

#endif
