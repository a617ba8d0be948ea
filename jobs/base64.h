/* Base64 inside JSON text, decoded piece by piece (RFC 4648, strictly).
 *
 * The text is what stands between the quotes of a JSON string: encoders write "/" as \/ and "+" as
 * \u002B, so escapes are undone on the way. No white space, no other alphabet, padding required. */
#ifndef NS_BASE64_H
#define NS_BASE64_H

#include "src/err.h"

#include <stddef.h>
#include <stdint.h>

struct base64 {
    uint64_t at;    /* bytes of text so far */
    uint32_t bits;  /* of an unfinished group */
    unsigned n;     /* characters of it */
    unsigned pads;  /* padding characters seen */
    unsigned state; /* in an escape: 0 outside, 1 after the backslash, 2..5 hex digits to come */
    unsigned code;  /* of a \u escape */
};

/* Room for the output of base64_push. */
#define BASE64_ROOM(len) ((len) / 4 * 3 + 3)

/* Decode the next len bytes into out; *n: how many came out. b starts zeroed. E_IMAGE_UNREADABLE
 * names the character and its place. */
enum status base64_push(struct base64 *b, const char *text, size_t len, unsigned char *out,
                        size_t *n, struct err *e);
/* E_IMAGE_UNREADABLE when the text stops within a group. */
enum status base64_end(const struct base64 *b, struct err *e);

#endif
