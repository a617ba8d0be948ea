/* Code point classes of the pre-tokenizer (kimi-k3 4.3) and UTF-8.
 *
 * The classes are those of Unicode 16.0, which tiktoken's regex engine uses; other versions differ
 * only in code points that 16.0 leaves unassigned, and
 * in U+0295 (a letter whose case changed). Surrogates and what is beyond U+10FFFF have
 * none. */
#ifndef NS_UNICODE_H
#define NS_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum unicode_class {
    UNICODE_HAN = 1,     /* script Han */
    UNICODE_LETTER = 2,  /* L */
    UNICODE_UPPER = 4,   /* Lu, Lt, Lm, Lo, M: Han included */
    UNICODE_LOWER = 8,   /* Ll, Lm, Lo, M: Han included */
    UNICODE_NUMBER = 16, /* N */
    UNICODE_SPACE = 32,  /* White_Space: without U+001C..U+001F */
};
/* Bits of enum unicode_class. */
unsigned unicode_class(uint32_t cp);
/* Python's str.isspace: White_Space and U+001C..U+001F. */
bool unicode_py_space(uint32_t cp);

/* The first character of s[0..n), n > 0. Well-formed: its length, and *cp. Ill-formed: -k, the
 * first k bytes count as one U+FFFD (maximal subpart, as Python and WHATWG replace). 0: all n bytes
 * are the beginning of a character. */
int unicode_decode(const char *s, size_t n, uint32_t *cp);
/* Length, 2 to 4, that a lead byte promises, and the bounds of the byte after it; 0: it is none. */
int unicode_lead(unsigned char b, unsigned char *low, unsigned char *high);
/* Where s stops being well-formed UTF-8: n when it is all well-formed. */
size_t unicode_valid(const char *s, size_t n);
/* Writes 1 to 4 bytes; cp is a scalar value. */
size_t unicode_encode(uint32_t cp, char out[4]);

#endif
