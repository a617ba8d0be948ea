/* Messages: roles, names, earlier reasoning; content goes to job_part.c. */
#include "jobs/job_build.h"

#include <stdio.h>

enum status job_add_message(struct job_builder *b, enum chat_role role, struct chat_message **out)
{
    struct job *j = b->job;
    void *at = j->messages;
    enum status rc =
        job_grow(j, &(struct job_array){&at, j->n_messages, &b->messages_cap, sizeof **out}, b->e);
    if (rc) return rc;
    j->messages = at;
    *out = &j->messages[j->n_messages++];
    **out = (struct chat_message){.role = role};
    return OK;
}

enum { MSG_ROLE, MSG_CONTENT, MSG_NAME, MSG_REASONING, MSG_REASONING2, MSG_COUNT };
static const struct job_field message_fields[] = {
    [MSG_ROLE] = {"role", JOB_TAKE},
    [MSG_CONTENT] = {"content", JOB_TAKE},
    [MSG_NAME] = {"name", JOB_TAKE},
    [MSG_REASONING] = {"reasoning_content", JOB_TAKE},
    [MSG_REASONING2] = {"reasoning", JOB_TAKE},
    {"refusal", JOB_EMPTY},
    {"annotations", JOB_EMPTY},
    {"audio", JOB_NEVER},
    {"tools", JOB_EMPTY},
    {"tool_calls", JOB_EMPTY},
    {"function_call", JOB_NEVER},
    {"tool_call_id", JOB_NEVER},
    {"partial", JOB_FALSE},
    {"prefix", JOB_FALSE},
};

static enum status add_with_role(struct job_builder *b, uint32_t v, const char *where,
                                 struct chat_message **out)
{
    static const struct {
        const char *name;
        enum chat_role role;
    } roles[] = {{"system", CHAT_SYSTEM},
                 {"developer", CHAT_SYSTEM},
                 {"user", CHAT_USER},
                 {"assistant", CHAT_ASSISTANT}};
    for (size_t i = 0; i < 4; i++) {
        if (jdoc_is(b->doc, v, roles[i].name)) return job_add_message(b, roles[i].role, out);
    }
    char path[JOB_PATH_CHARS];
    job_path(path, where, "role");
    bool tool = jdoc_is(b->doc, v, "tool") || jdoc_is(b->doc, v, "function");
    return job_refuse(b, tool ? E_UNSUPPORTED_FIELD : E_INVALID_REQUEST, path,
                      "system, developer, user or assistant", v);
}

static enum status read_message(struct job_builder *b, uint32_t v, const char *where)
{
    uint32_t values[MSG_COUNT] = {0};
    struct job_field_set set = {message_fields, sizeof message_fields / sizeof *message_fields,
                                values};
    enum status rc = job_fields(b, v, where, &set, 1);
    if (rc) return rc;
    struct chat_message *m;
    char path[JOB_PATH_CHARS];
    if (!values[MSG_ROLE]) return job_bad(b, where, "a message with a role", v);
    rc = add_with_role(b, values[MSG_ROLE], where, &m);
    if (rc) return rc;
    job_path(path, where, "name");
    if (values[MSG_NAME]) rc = job_string(b, values[MSG_NAME], path, &m->name, NULL);
    uint32_t reasoning = values[MSG_REASONING] ? values[MSG_REASONING] : values[MSG_REASONING2];
    job_path(path, where, "reasoning_content");
    if (reasoning && m->role != CHAT_ASSISTANT && !rc)
        return job_bad(b, path, "it on assistant messages only", reasoning);
    if (reasoning && !rc) rc = job_string(b, reasoning, path, &m->reasoning, NULL);
    if (rc) return rc;
    job_path(path, where, "content");
    if (values[MSG_CONTENT]) return job_add_content(b, values[MSG_CONTENT], path, m);
    return m->role == CHAT_ASSISTANT ? OK : job_bad(b, where, "a message with content", v);
}

enum status job_add_messages(struct job_builder *b, uint32_t array, const char *where)
{
    const struct jdoc *j = b->doc;
    enum status rc = OK;
    size_t i = 0;
    if (j->values[array].type != JDOC_ARRAY || j->values[array].count == 0)
        return job_bad(b, where, "an array of at least one message", array);
    for (uint32_t v = jdoc_first(j, array); v && !rc; v = j->values[v].next) {
        char path[JOB_PATH_CHARS];
        snprintf(path, sizeof path, "%s[%zu]", where, i++);
        rc = read_message(b, v, path);
    }
    if (rc) return rc;
    if (b->n_markers != b->n_marked)
        return err_set(b->e, E_INVALID_REQUEST,
                       "%s: %zu <image> markers in the text, but %s has %zu images", where,
                       b->n_markers, b->images, b->n_marked);
    const struct chat_message *last = &b->job->messages[b->job->n_messages - 1];
    if (last->role == CHAT_ASSISTANT)
        return err_set(b->e, E_INVALID_REQUEST,
                       "%s: the last message is the assistant's; leave the answer out", where);
    if (last->n_parts == 0)
        return err_set(b->e, E_INVALID_REQUEST, "%s: the last message is empty", where);
    return OK;
}
