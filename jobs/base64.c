/* One character at a time: undo the JSON escape, look the character up, emit three bytes for four.
 */
#include "jobs/base64.h"

#include <inttypes.h>
#include <stdbool.h>

static int digit(unsigned c)
{
    if (c >= 'A' && c <= 'Z') return (int)c - 'A';
    if (c >= 'a' && c <= 'z') return (int)c - 'a' + 26;
    if (c >= '0' && c <= '9') return (int)c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static enum status bad(const struct base64 *b, unsigned c, struct err *e)
{
    if (c > 0x20 && c < 0x7f)
        return err_set(e, E_IMAGE_UNREADABLE,
                       "inline image: character %" PRIu64 " of the base64 text is '%c'", b->at,
                       (int)c);
    return err_set(e, E_IMAGE_UNREADABLE,
                   "inline image: character %" PRIu64 " of the base64 text is 0x%02x", b->at, c);
}

static int hex(unsigned c)
{
    if (c >= '0' && c <= '9') return (int)c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? (int)c - 'a' + 10 : -1;
}

/* Takes one byte of an escape; true when *c is the character it stands for. */
static bool escape(struct base64 *b, unsigned *c)
{
    if (b->state == 0) {
        b->state = 1;
    } else if (b->state == 1) {
        b->code = 0;
        b->state = *c == 'u' ? 5 : 0;
        if (*c != '/') *c = '\\'; /* no other escape stands for a digit */
        return b->state == 0;
    } else {
        int d = hex(*c);
        b->code = b->code << 4 | (d < 0 ? 0u : (unsigned)d);
        *c = b->code;
        b->state = b->state == 2 ? 0 : b->state - 1;
        return b->state == 0;
    }
    return false;
}

enum status base64_push(struct base64 *b, const char *text, size_t len, unsigned char *out,
                        size_t *n, struct err *e)
{
    unsigned char *o = out;
    *n = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned c = (unsigned char)text[i];
        b->at++;
        if ((b->state || c == '\\') && !escape(b, &c)) continue;
        if (c == '=' && b->n + b->pads >= 2 && b->n + b->pads < 4 && b->n >= 2) {
            if (++b->pads + b->n == 4) {
                *o++ = (unsigned char)(b->bits >> (b->n == 3 ? 10 : 4));
                if (b->n == 3) *o++ = (unsigned char)(b->bits >> 2);
            }
            continue;
        }
        int d = digit(c);
        if (d < 0 || b->pads) return bad(b, c, e);
        b->bits = b->bits << 6 | (unsigned)d;
        if (++b->n == 4) {
            *o++ = (unsigned char)(b->bits >> 16);
            *o++ = (unsigned char)(b->bits >> 8);
            *o++ = (unsigned char)b->bits;
            b->bits = b->n = 0;
        }
    }
    *n = (size_t)(o - out);
    return OK;
}

enum status base64_end(const struct base64 *b, struct err *e)
{
    if (b->state || (b->n && b->n + b->pads != 4))
        return err_set(e, E_IMAGE_UNREADABLE,
                       "inline image: the base64 text stops after %" PRIu64
                       " characters, within a group of four",
                       b->at);
    return OK;
}
