/* The bytes of a line become a job or a job's error; the spec of a job is read back to the same
 * spec. A leading 'S' makes the rest a spec, as a damaged database may hold it. */
#include "jobs/job.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool good)
{
    if (!good) abort();
}

/* j was read from `text`: what it holds is whole, and its spec leads back to itself. */
static void check_job(const struct job *j, size_t text_len)
{
    struct buf first = {0}, second = {0};
    struct job again;
    size_t images = 0;
    check(j->custom_id != NULL);
    for (size_t i = 0; i < j->n_messages; i++)
        for (size_t k = 0; k < j->messages[i].n_parts; k++)
            if (j->messages[i].parts[k].image)
                check(j->images[images++].part == &j->messages[i].parts[k]);
    check(images == j->n_images);
    for (size_t i = 0; i < j->n_images; i++)
        if (!j->images[i].ref && text_len) check(j->images[i].at + j->images[i].len < text_len);
    (void)job_shard_hash(j);
    check(job_spec(j, &first, NULL) == OK);
    check(job_from_spec(&again, first.data, first.len, NULL) == OK);
    check(job_spec(&again, &second, NULL) == OK);
    check(first.len == second.len && !memcmp(first.data, second.data, first.len));
    job_free(&again);
    buf_free(&first);
    buf_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct job_opts opts = {.prompt = "p", .system = "s"};
    struct job j;
    struct err e = {0};
    const char *text = (const char *)data;
    bool spec = size && text[0] == 'S';
    enum status rc = spec ? job_from_spec(&j, text + 1, size - 1, &e)
                          : job_parse(&j, text, size, size & 1 ? &opts : NULL, &e);
    if (rc)
        check(e.code == rc && e.text[0] && (status_fault(rc) == FAULT_JOB || rc == E_DB));
    else
        check_job(&j, spec ? 0 : size);
    job_free(&j);
    return 0;
}
