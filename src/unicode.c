/* Code point classes by binary search in a generated table of runs, and a strict UTF-8 decoder:
 * no overlong form, no surrogate, nothing beyond U+10FFFF. */
#include "src/unicode.h"
#include "src/unicode_table.h"

unsigned unicode_class(uint32_t cp)
{
    if (cp > 0x10FFFF) return 0;
    size_t low = 0, high = sizeof unicode_runs / sizeof *unicode_runs;
    while (high - low > 1) {
        size_t mid = (low + high) / 2;
        if (unicode_runs[mid] >> 6 <= cp)
            low = mid;
        else
            high = mid;
    }
    return unicode_runs[low] & 63;
}

bool unicode_py_space(uint32_t cp)
{
    return (cp >= 0x1C && cp <= 0x1F) || (unicode_class(cp) & UNICODE_SPACE);
}

int unicode_lead(unsigned char b, unsigned char *low, unsigned char *high)
{
    *low = 0x80, *high = 0xBF;
    if (b >= 0xC2 && b <= 0xDF) return 2;
    if (b >= 0xE0 && b <= 0xEF) {
        if (b == 0xE0) *low = 0xA0;
        if (b == 0xED) *high = 0x9F;
        return 3;
    }
    if (b >= 0xF0 && b <= 0xF4) {
        if (b == 0xF0) *low = 0x90;
        if (b == 0xF4) *high = 0x8F;
        return 4;
    }
    return 0;
}

int unicode_decode(const char *s, size_t n, uint32_t *cp)
{
    unsigned char b = (unsigned char)s[0], low, high;
    if (b < 0x80) {
        *cp = b;
        return 1;
    }
    int len = unicode_lead(b, &low, &high);
    if (!len) return -1;
    *cp = b & (0x7Fu >> len);
    for (int i = 1; i < len; i++) {
        if ((size_t)i == n) return 0;
        b = (unsigned char)s[i];
        if (b < low || b > high) return -i;
        low = 0x80, high = 0xBF;
        *cp = *cp << 6 | (b & 0x3F);
    }
    return len;
}

size_t unicode_valid(const char *s, size_t n)
{
    size_t at = 0;
    uint32_t cp;
    while (at < n) {
        int len = unicode_decode(s + at, n - at, &cp);
        if (len <= 0) break;
        at += (size_t)len;
    }
    return at;
}

size_t unicode_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    size_t len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (size_t i = len - 1; i > 0; i--, cp >>= 6) out[i] = (char)(0x80 | (cp & 0x3F));
    out[0] = (char)(0xF00u >> len | cp);
    return len;
}
