/* compare_answers EXPECTED OUT PERCENT: are the answers in a run's output those expected?
 *
 * EXPECTED has a line {"custom_id", "answer"} for each job, OUT is the output of `nightshift run`.
 * Prints each answer that differs and "N of M as expected"; exit 1 when fewer than PERCENT of the
 * jobs have exactly the expected text, when a job is missing or when OUT has one that nobody
 * expects. */
#include "tests/lib/test.h"

#include <cjson/cJSON.h>

#define MAX_JOBS 4096

static struct {
    char *id, *answer;
    bool seen;
} jobs[MAX_JOBS];
static size_t n_jobs;

static const char *text(const cJSON *at, const char *name)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(at, name));
}

/* Calls fn for each line of a file parsed as JSON. */
static void each_line(const char *path, void (*fn)(const cJSON *line))
{
    char *all = test_read(path, NULL);
    if (!all) exit(1);
    for (char *rest = all, *line; (line = strsep(&rest, "\n"));) {
        if (!*line) continue;
        cJSON *o = cJSON_Parse(line);
        if (!o) {
            printf("%s: not JSON: %.60s\n", path, line);
            exit(1);
        }
        fn(o);
        cJSON_Delete(o);
    }
    free(all);
}

static void expect(const cJSON *line)
{
    const char *id = text(line, "custom_id"), *answer = text(line, "answer");
    if (!id || !answer || n_jobs == MAX_JOBS) {
        printf("expected answer %zu: no custom_id or no answer\n", n_jobs + 1);
        exit(1);
    }
    jobs[n_jobs].id = strdup(id);
    jobs[n_jobs++].answer = strdup(answer);
}

static size_t same;

static void compare(const cJSON *line)
{
    const char *id = text(line, "custom_id");
    const cJSON *body = cJSON_GetObjectItem(cJSON_GetObjectItem(line, "response"), "body");
    const cJSON *choice = cJSON_GetArrayItem(cJSON_GetObjectItem(body, "choices"), 0);
    const char *answer = text(cJSON_GetObjectItem(choice, "message"), "content");
    size_t i = 0;
    while (i < n_jobs && (!id || strcmp(jobs[i].id, id) || jobs[i].seen)) i++;
    if (i == n_jobs) {
        printf("unexpected: %s\n", id ? id : "a line without custom_id");
        exit(1);
    }
    jobs[i].seen = true;
    if (answer && !strcmp(answer, jobs[i].answer))
        same++;
    else
        printf("%s: \"%s\", not \"%s\"\n", id, answer ? answer : "(failed)", jobs[i].answer);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        printf("usage: compare_answers EXPECTED OUT PERCENT\n");
        return 2;
    }
    each_line(argv[1], expect);
    each_line(argv[2], compare);
    bool missing = false;
    for (size_t i = 0; i < n_jobs; i++) {
        if (!jobs[i].seen) printf("missing: %s\n", jobs[i].id);
        missing |= !jobs[i].seen;
        free(jobs[i].id);
        free(jobs[i].answer);
    }
    printf("%zu of %zu as expected\n", same, n_jobs);
    return missing || n_jobs == 0 || (double)same * 100 < strtod(argv[3], NULL) * (double)n_jobs;
}
