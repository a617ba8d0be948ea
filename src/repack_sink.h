/* Where a file's bytes go while they are made: into a new file, into a comparison with a file that
 * is there, or nowhere. All three take the same bytes in order, so that what is compared is what
 * would be written. */
#ifndef NS_REPACK_SINK_H
#define NS_REPACK_SINK_H

#include "src/os.h"

/* Bytes read at once for comparing. */
#define REPACK_WINDOW ((size_t)2 << 20)

struct repack_sink {
    uint64_t at;                /* bytes taken */
    struct os_publish *to;      /* new file */
    uint64_t synced;            /* of it, on the disk */
    const char *path;           /* compared file */
    struct os_file all, direct; /* the same, for its last part and for direct reads */
    char *window;               /* REPACK_WINDOW bytes of it, from a multiple of that on */
    bool differs;               /* the file's bytes are others */
};

void repack_sink_nowhere(struct repack_sink *s);
void repack_sink_write(struct repack_sink *s, struct os_publish *to);
/* Compare with what the disk holds, not the page cache. window: aligned to OS_DIRECT_ALIGN; both
 * are borrowed until repack_sink_end. */
enum status repack_sink_compare(struct repack_sink *s, const char *path, char *window,
                                struct err *e);
/* E_IO where the compared file differs or ends, naming the byte; differs tells. */
enum status repack_sink_put(struct repack_sink *s, const void *data, size_t len, struct err *e);
/* There are no more bytes: nor may the compared file have any, when rc is OK. Returns rc or that
 * error. */
enum status repack_sink_end(struct repack_sink *s, enum status rc, struct err *e);

#endif
