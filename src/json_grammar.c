/* The acceptor. A thread is a stack of values under way; each byte goes to the innermost one, which
 * takes it, refuses it, or ends and hands it on. Alternatives split a thread; those that refuse a
 * byte die, equal ones fall together. A step is only taken into a state that can be finished: a
 * value is begun only where its smallest form fits the depth, a word or number only on the way to
 * one that is allowed. */
#include "src/json_grammar.h"
#include "src/json_scalar.h"

#include <string.h>

static bool is_space(unsigned char b)
{
    return b == ' ' || b == '\t' || b == '\n' || b == '\r';
}

static bool fits(const struct json_grammar *g, const struct json_thread *t, uint16_t node)
{
    return t->depth + g->nodes[node].min_depth <= JSON_GRAMMAR_DEPTH;
}

static void open_value(struct json_thread *t, uint16_t node)
{
    struct json_frame *f = &t->frames[t->depth++];
    *f = (struct json_frame){.node = node, .step = AT_START};
}

/* --- objects and arrays --- */

static bool key_allowed(const struct json_cursor *c, uint32_t i)
{
    return !(c->f->bits >> i & 1) && fits(c->g, c->t, c->g->words[c->node->first + i].node);
}

static bool additional_allowed(const struct json_cursor *c)
{
    return c->node->next != JSON_NODE_NONE && fits(c->g, c->t, c->node->next);
}

static bool some_key(const struct json_cursor *c, uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i < last; i++)
        if (key_allowed(c, i)) return true;
    return false;
}

static enum json_fate begin_key(const struct json_cursor *c)
{
    struct json_frame *f = c->f;
    f->step = AT_KEY;
    f->first = f->utf8 = 0;
    f->last = (uint16_t)c->node->count;
    f->pos = 0;
    f->flag = additional_allowed(c);
    return f->flag || some_key(c, 0, f->last) ? TAKEN : REFUSED;
}

static enum json_fate key_byte(const struct json_cursor *c, unsigned char b)
{
    struct json_frame *f = c->f;
    if (b == '"' && !f->utf8) {
        bool whole = json_word_is_whole(c->g, c->f);
        if (whole && key_allowed(c, f->first)) {
            f->bits |= (uint64_t)1 << f->first;
            f->child = c->g->words[c->node->first + f->first].node;
        } else if (!whole && f->flag) {
            f->child = c->node->next;
        } else {
            whole = false;
            f->flag = 0;
        }
        if (whole || f->flag) {
            f->step = AT_COLON;
            f->space = 0;
            return TAKEN;
        }
    }
    json_word_narrow(c, b);
    if (f->flag) f->flag = json_plain_byte(f, b) == TAKEN;
    return f->flag || some_key(c, f->first, f->last) ? TAKEN : REFUSED;
}

static enum json_fate end_object(const struct json_cursor *c)
{
    return (c->node->required & ~c->f->bits) ? REFUSED : DONE;
}

static enum json_fate object_byte(const struct json_cursor *c, unsigned char b)
{
    struct json_frame *f = c->f;
    switch (f->step) {
    case AT_START:
        f->step = AT_FIRST;
        f->space = 0;
        return b == '{' ? TAKEN : REFUSED;
    case AT_FIRST:
        if (b == '}') return end_object(c);
        return b == '"' ? begin_key(c) : REFUSED;
    case AT_NEXT:
        return b == '"' ? begin_key(c) : REFUSED;
    case AT_KEY:
        return key_byte(c, b);
    case AT_COLON:
        if (b != ':') return REFUSED;
        f->step = AT_AFTER;
        f->space = 0;
        open_value(c->t, (uint16_t)f->child);
        return TAKEN;
    default:
        if (b == '}') return end_object(c);
        f->step = AT_NEXT;
        f->space = 0;
        return b == ',' && (additional_allowed(c) || some_key(c, 0, c->node->count)) ? TAKEN
                                                                                     : REFUSED;
    }
}

static bool item_allowed(const struct json_cursor *c)
{
    return c->f->n < c->node->max && fits(c->g, c->t, c->node->next);
}

static enum json_fate array_byte(const struct json_cursor *c, unsigned char b)
{
    struct json_frame *f = c->f;
    if (f->step == AT_START) {
        f->step = AT_FIRST;
        f->space = 0;
        return b == '[' ? TAKEN : REFUSED;
    }
    if (b == ']') return f->n >= c->node->min ? DONE : REFUSED;
    if (!item_allowed(c)) return REFUSED;
    bool first = f->step == AT_FIRST;
    if (!first && b != ',') return REFUSED;
    f->step = AT_AFTER;
    f->space = 0;
    open_value(c->t, c->node->next);
    return first ? OPENED : TAKEN;
}

/* --- threads --- */

static bool skips_space(const struct json_frame *f)
{
    return f->step <= AT_AFTER && f->step != AT_KEY;
}

static enum json_fate value_byte(const struct json_cursor *c, unsigned char b)
{
    if (skips_space(c->f) && is_space(b))
        return c->f->space++ < JSON_GRAMMAR_SPACE ? TAKEN : REFUSED;
    switch (c->node->kind) {
    case JSON_K_OBJECT:
        return object_byte(c, b);
    case JSON_K_ARRAY:
        return array_byte(c, b);
    case JSON_K_STRING:
        return json_string_byte(c, b);
    case JSON_K_NUMBER:
        return json_number_byte(c, b);
    case JSON_K_INTEGER:
        return json_integer_byte(c, b);
    default:
        return json_literal_byte(c, b);
    }
}

static void copy_thread(struct json_thread *to, const struct json_thread *from)
{
    to->depth = from->depth;
    memcpy(to->frames, from->frames, from->depth * sizeof *to->frames);
}

static void keep(struct json_state *s, const struct json_thread *t)
{
    size_t bytes = t->depth * sizeof *t->frames;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->threads[i].depth == t->depth && !memcmp(s->threads[i].frames, t->frames, bytes))
            return;
    if (s->n < JSON_GRAMMAR_THREADS) copy_thread(&s->threads[s->n++], t);
}

static void end_value(struct json_thread *t)
{
    t->depth--;
    if (t->depth) t->frames[t->depth - 1].n++;
}

/* Gives b to t, which is used up; what lives on is kept in s. */
static void feed(struct json_state *s, struct json_thread *t, unsigned char b)
{
    const struct json_grammar *g = s->grammar;
    while (t->depth) {
        struct json_frame *f = &t->frames[t->depth - 1];
        const struct json_node_rule *node = &g->nodes[f->node];
        if (node->kind == JSON_K_UNION && !is_space(b)) {
            t->depth--;
            for (uint32_t i = 0; i < node->count; i++) {
                uint16_t option = g->options[node->first + i];
                struct json_thread own;
                if (!fits(g, t, option)) continue;
                copy_thread(&own, t);
                open_value(&own, option);
                feed(s, &own, b);
            }
            return;
        }
        switch (value_byte(&(struct json_cursor){g, node, f, t}, b)) {
        case REFUSED:
            return;
        case TAKEN:
            keep(s, t);
            return;
        case DONE:
            end_value(t);
            keep(s, t);
            return;
        case ENDED:
            end_value(t);
            break;
        case OPENED:
            break;
        }
    }
}

void json_state_init(struct json_state *s, const struct json_grammar *g)
{
    s->grammar = g;
    s->n = 1;
    s->threads[0].depth = 0;
    open_value(&s->threads[0], g->root);
}

void json_state_copy(struct json_state *to, const struct json_state *from)
{
    to->grammar = from->grammar;
    to->n = from->n;
    for (uint32_t i = 0; i < from->n; i++) copy_thread(&to->threads[i], &from->threads[i]);
}

bool json_state_push(struct json_state *s, const char *bytes, size_t n)
{
    struct json_state state[2]; /* of this byte and the last one */
    const struct json_state *now = s;
    for (size_t i = 0; i < n; i++) {
        struct json_state *next = &state[i & 1];
        struct json_thread t;
        next->grammar = s->grammar;
        next->n = 0;
        for (uint32_t k = 0; k < now->n; k++) {
            copy_thread(&t, &now->threads[k]);
            feed(next, &t, (unsigned char)bytes[i]);
        }
        if (!next->n) return false;
        now = next;
    }
    if (n) json_state_copy(s, now);
    return true;
}

static bool thread_can_end(const struct json_grammar *g, const struct json_thread *t)
{
    return t->depth == 1 ? json_scalar_can_end(g, &t->frames[0]) : !t->depth;
}

bool json_state_can_end(const struct json_state *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (thread_can_end(s->grammar, &s->threads[i])) return true;
    return false;
}

bool json_state_must_end(const struct json_state *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->threads[i].depth) return false;
    return true;
}

uint32_t json_state_plain(const struct json_state *s)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct json_thread *t = &s->threads[i];
        const struct json_frame *f = t->depth ? &t->frames[t->depth - 1] : NULL;
        if (!f || f->utf8) continue;
        const struct json_node_rule *node = &s->grammar->nodes[f->node];
        if ((f->step == AT_BODY && node->max == JSON_UNLIMITED) || (f->step == AT_KEY && f->flag))
            return UINT32_MAX;
        if (f->step == AT_BODY && node->max - f->n > most) most = node->max - f->n;
    }
    return most;
}

/* White space would be taken, and dropped, by every thread. */
static bool between_values(const struct json_state *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (!s->threads[i].depth || !skips_space(&s->threads[i].frames[s->threads[i].depth - 1]))
            return false;
    return true;
}

size_t json_state_forced(const struct json_state *s, char *out, size_t cap)
{
    struct json_state now, only, next;
    size_t n = 0;
    json_state_copy(&now, s);
    for (; n < cap && !json_state_can_end(&now); n++) {
        int found = 0;
        bool skip = between_values(&now);
        for (int b = 0; b < 256 && found < 2; b++) {
            char byte = (char)b;
            if (skip && is_space((unsigned char)b)) continue;
            json_state_copy(&next, &now);
            if (!json_state_push(&next, &byte, 1)) continue;
            out[n] = byte;
            json_state_copy(&only, &next);
            found++;
        }
        if (found != 1) break;
        json_state_copy(&now, &only);
    }
    return n;
}
