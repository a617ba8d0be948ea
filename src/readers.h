/* Threads that read ahead of use, shared by all who have something to read.
 *
 * What is to be read, and where to, is the sources' business. A free thread asks them in turn, the
 * most urgent first, so that one with much to read waits for the others and keeps the disk busy
 * when they have nothing. Thread safe. */
#ifndef NS_READERS_H
#define NS_READERS_H

#include "src/err.h"

#include <stdbool.h>

#define READERS_THREADS 4 /* of an engine */

struct readers;
enum readers_rank { READERS_EXPERTS, READERS_LAYERS, READERS_RANKS };
/* Does one read; false: there is nothing to do now. Called from several threads at once. */
typedef bool (*readers_fn)(void *user);

enum status readers_open(struct readers **out, unsigned threads, struct err *e);
/* r may be NULL. All sources are gone by then. */
void readers_close(struct readers *r);
/* 0 for NULL. */
unsigned readers_threads(const struct readers *r);

void readers_add(struct readers *r, enum readers_rank rank, readers_fn fn, void *user);
/* Waits until no thread is in the source. r may be NULL. */
void readers_remove(struct readers *r, enum readers_rank rank);
/* Around every read that a source has done, by these threads or by one that could not wait. r may
 * be NULL. */
void readers_begin(struct readers *r);
void readers_end(struct readers *r);
/* Seconds in which at least one read was in flight. 0 for NULL. */
double readers_read_s(struct readers *r);
/* A source has something to do. May be called with a lock that the source takes. r may be NULL. */
void readers_wake(struct readers *r);

#endif
