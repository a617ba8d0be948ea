/* Writing a file, or comparing with one.
 *
 * A new file is synced every so many bytes: a failing disk is noticed early, and neither dirty nor
 * stale pages of a file larger than memory gather. A comparison reads direct; where the file system
 * cannot, and at the end of the file, through the page cache, which the writer emptied of it. */
#include "src/repack_sink.h"

#include <inttypes.h>
#include <string.h>

#define SYNC_BYTES ((uint64_t)1 << 30)

void repack_sink_nowhere(struct repack_sink *s)
{
    *s = (struct repack_sink){.all.fd = -1, .direct.fd = -1};
}

void repack_sink_write(struct repack_sink *s, struct os_publish *to)
{
    repack_sink_nowhere(s);
    s->to = to;
}

enum status repack_sink_compare(struct repack_sink *s, const char *path, char *window,
                                struct err *e)
{
    repack_sink_nowhere(s);
    s->path = path;
    s->window = window;
    enum status rc = os_open(&s->all, path, false, e);
    if (!rc) rc = os_open(&s->direct, path, true, e);
    return rc;
}

static enum status differ(struct repack_sink *s, uint64_t at, struct err *e)
{
    s->differs = true;
    return err_set(e, E_IO, "%s differs at byte %" PRIu64 " of %" PRIu64, s->path, at, s->all.size);
}

static enum status fill_window(struct repack_sink *s, struct err *e)
{
    uint64_t left = s->all.size - s->at;
    size_t len = left < REPACK_WINDOW ? (size_t)left : REPACK_WINDOW, body = 0;
    if (s->direct.direct) {
        body = len - len % OS_DIRECT_ALIGN;
        if (os_read_at(&s->direct, s->at, s->window, body, s->path, NULL) != OK) body = 0;
    }
    return os_read_at(&s->all, s->at + body, s->window + body, len - body, s->path, e);
}

static enum status compare(struct repack_sink *s, const char *data, size_t len, struct err *e)
{
    while (len) {
        size_t in_window = s->at % REPACK_WINDOW, n = REPACK_WINDOW - in_window;
        if (s->at == s->all.size) return differ(s, s->at, e);
        if (n > len) n = len;
        if (n > s->all.size - s->at) n = (size_t)(s->all.size - s->at);
        enum status rc = in_window ? OK : fill_window(s, e);
        if (rc) return rc;
        if (memcmp(s->window + in_window, data, n) != 0) {
            size_t i = 0;
            while (s->window[in_window + i] == data[i]) i++;
            return differ(s, s->at + i, e);
        }
        s->at += n;
        data += n;
        len -= n;
    }
    return OK;
}

enum status repack_sink_put(struct repack_sink *s, const void *data, size_t len, struct err *e)
{
    if (s->path) return compare(s, data, len, e);
    s->at += len;
    if (!s->to) return OK;
    os_publish_write(s->to, data, len);
    if (!s->to->failed && s->at - s->synced < SYNC_BYTES) return OK;
    s->synced = s->at;
    return os_publish_sync(s->to, e);
}

enum status repack_sink_end(struct repack_sink *s, enum status rc, struct err *e)
{
    if (!rc && s->path && s->at != s->all.size) rc = differ(s, s->at, e);
    if (!rc && s->to) rc = os_publish_sync(s->to, e);
    os_close(&s->all);
    os_close(&s->direct);
    return rc;
}
