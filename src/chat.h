/* The chat template (XTML, kimi-k3 section 5): a conversation becomes a list of segments, markup
 * and text apart, each tokenised on its own. No ids here.
 *
 * Text is ordinary whatever it spells, <|kimi_image_placeholder|> included: an image is a part of
 * its own. Tools are not rendered. */
#ifndef NS_CHAT_H
#define NS_CHAT_H

#include "src/mem.h"

#include <stdbool.h>

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT };
enum chat_format { CHAT_TEXT, CHAT_JSON_OBJECT, CHAT_JSON_SCHEMA };

struct chat_part {
    bool image;
    const char *text; /* UTF-8, len bytes; unused for an image */
    size_t len;
    unsigned width, height; /* the image's own size, which the prompt states */
};

struct chat_message {
    enum chat_role role;
    const char *name; /* or NULL; empty is none */
    const struct chat_part *parts;
    size_t n_parts;
    const char *reasoning; /* assistant: earlier reasoning, or NULL; shown with thinking on */
};

struct chat_options {
    bool thinking;
    const char *effort; /* "low", "high", "max", or NULL for no effort message; unused with
                           thinking off */
    enum chat_format format;
    const char *schema; /* CHAT_JSON_SCHEMA: as canonical JSON text (chat_canonical_json) */
};

struct chat_segment {
    size_t at, len; /* in chat_prompt.text */
    bool special;   /* spellings of specials count */
    int image; /* number of the image whose media block this is, in order of appearance; else -1 */
};

struct chat_prompt {
    struct buf text;
    struct chat_segment *segments;
    size_t n, cap;
};

/* Ends with an assistant message that waits in its think (thinking on) or response element.
 * E_INVALID_REQUEST: bad UTF-8, an unknown effort, no schema, an image without size. After an error
 * out is empty. */
enum status chat_render(struct chat_prompt *out, const struct chat_message *messages, size_t n,
                        const struct chat_options *o, struct err *e);
void chat_prompt_free(struct chat_prompt *p);

/* Appends JSON text with keys sorted recursively, separators "," and ":", no ASCII escaping: what
 * the template embeds. E_INVALID_JSON; E_INVALID_REQUEST for a number beyond doubles. */
enum status chat_canonical_json(const char *json, struct buf *out, struct err *e);

#endif
