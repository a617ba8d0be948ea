/* Decoding in a process of its own, one for each picture: one that crashes, hangs or eats memory
 * fails alone, and code that a file might take over finds no files, no network and no other
 * process.
 *
 * sandbox_open forks a small keeper, so it must be called before any thread is started. The keeper
 * touches no picture: it forks a child for each, with limits on time and memory and, where the
 * kernel has it, a system call filter, and tells how the child ended. Bytes and pixels travel in
 * shared memory. The keeper dies with its parent. */
#ifndef NS_SANDBOX_H
#define NS_SANDBOX_H

#include "vision/picture.h"

struct sandbox {
    int socket;
    int keeper; /* its process id */
};

/* What a child runs: picture_decode, or a test's own. */
typedef enum status (*sandbox_fn)(const struct picture_job *j, struct picture_info *info,
                                  uint8_t *rgb, struct err *e);

enum status sandbox_open(struct sandbox **out, sandbox_fn fn, struct err *e);
void sandbox_close(struct sandbox *s);

/* As picture_decode. A child that crashes or runs longer than limits->timeout_s is
 * E_IMAGE_UNREADABLE, one that runs out of memory E_IMAGE_TOO_LARGE. E_IO: the keeper is gone. One
 * caller at a time. */
enum status sandbox_decode(struct sandbox *s, const struct picture_job *j,
                           struct picture_info *info, uint8_t *rgb, struct err *e);

#endif
