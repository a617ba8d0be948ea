/* Hashes of a conversation's beginnings. */
#include "jobs/place.h"

#include <string.h>

#define SYSTEM_BITS 12
#define FIRST_BITS  26
#define SECOND_BITS 13
#define REST_BITS   12
#define TEXT_HEAD   64 /* bytes of a text that make a part of their own */

struct walk {
    uint64_t hash;
    unsigned parts;
    uint64_t after[2]; /* the hash after the first and the second part */
};

static uint64_t mix(uint64_t h, const char *at, size_t len)
{
    for (size_t i = 0; i < len; i++) h = (h ^ (unsigned char)at[i]) * 0x100000001b3u;
    h = (h ^ h >> 31) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static void part(struct walk *w, const char *at, size_t len)
{
    w->hash = mix(w->hash, at, len);
    if (w->parts < 2) w->after[w->parts++] = w->hash;
}

static uint64_t bits(uint64_t hash, unsigned n)
{
    return hash >> (64 - n);
}

int64_t place_of(const struct job *j, const char *const *sha256)
{
    size_t image = 0, m = 0;
    uint64_t system = 0;
    for (; m < j->n_messages && j->messages[m].role == CHAT_SYSTEM; m++)
        for (size_t k = 0; k < j->messages[m].n_parts; k++) {
            const struct chat_part *p = &j->messages[m].parts[k];
            if (p->image)
                image++;
            else
                system = mix(system + 1, p->text, p->len);
        }
    uint64_t key = system ? bits(system, SYSTEM_BITS) | 1 : 0;

    struct walk w = {.hash = 1};
    for (; m < j->n_messages; m++)
        for (size_t k = 0; k < j->messages[m].n_parts; k++) {
            const struct chat_part *p = &j->messages[m].parts[k];
            if (p->image) {
                const char *sha = image < j->n_images ? sha256[image++] : "";
                part(&w, sha, strlen(sha));
            } else {
                size_t head = p->len < TEXT_HEAD ? p->len : TEXT_HEAD;
                part(&w, p->text, head);
                if (head < p->len) part(&w, p->text + head, p->len - head);
            }
        }
    for (unsigned i = w.parts; i < 2; i++) w.after[i] = w.hash;
    key = key << FIRST_BITS | bits(w.after[0], FIRST_BITS);
    key = key << SECOND_BITS | bits(w.after[1], SECOND_BITS);
    key = key << REST_BITS | bits(w.hash, REST_BITS);
    return (int64_t)key;
}
