/* bench_order QUEUE MODEL [OPTION...]: input order against auto order, in counts.
 *
 * QUEUE is a file of jobs, or makes one of the demo's pictures: "mixed" (the jobs of
 * tests/golden/demo shuffled, more questions on some of the pictures), "questions" (20 on each of
 * 50 pictures, or as many as a number behind the word says, under one long system prompt,
 * shuffled), "captions", "same" (one prompt again and again). Options are those of `run`. Run from
 * the root of the repository. */
#include "jobs/cmd_bench_order.h"

#include "tests/lib/test.h"

#include <unistd.h>

#define DEMO "tests/golden/demo"

static unsigned long long rng = 7;

static void shuffle(const char **line, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        size_t k = test_rand(&rng) % i;
        const char *t = line[i - 1];
        line[i - 1] = line[k];
        line[k] = t;
    }
}

static const char *const questions[] = {
    "Describe this image.",
    "Caption this image.",
    "What is in the image?",
    "How many shapes are there?",
    "What colour is the circle?",
    "What colour is the square?",
    "What colour is the star?",
    "What colour is the background?",
    "Is there a red circle?",
    "Is there a yellow heart?",
    "Is there a blue square?",
    "Where is the circle?",
    "Where is the square?",
    "Where is the star?",
    "Is the circle large?",
    "What is written in the image?",
    "Read the text.",
    "What is at the top?",
    "What is at the left?",
    "What shape is the red object?",
};
#define N_QUESTIONS (sizeof questions / sizeof *questions)

struct lines {
    const char *at[4096];
    size_t n;
};

static void ask(struct lines *l, int image, const char *question, const char *system)
{
    char *line = NULL;
    if (asprintf(&line,
                 "{\"custom_id\":\"q%zu\",\"image\":\"images/%03d.png\",\"prompt\":\"%s\"%s,"
                 "\"max_tokens\":80}",
                 l->n, image, question, system) < 0)
        abort();
    l->at[l->n++] = line;
}

static void split(struct lines *l, char *text)
{
    for (char *line; (line = strsep(&text, "\n"));)
        if (*line) l->at[l->n++] = line;
}

/* Pictures of the demo have numbers with gaps. */
static size_t pictures(int *out, size_t most)
{
    size_t n = 0;
    for (int i = 0; i < 1000 && n < most; i++) {
        char path[64];
        snprintf(path, sizeof path, DEMO "/images/%03d.png", i);
        if (access(path, R_OK) == 0) out[n++] = i;
    }
    return n;
}

static bool make(struct lines *l, const char *queue)
{
    int image[200];
    size_t n = pictures(image, 200);
    if (!strcmp(queue, "mixed")) {
        split(l, test_read(DEMO "/jobs.jsonl", NULL));
        for (size_t i = 0; i < 20 && i < n; i++)
            for (size_t k = 0; k < 4; k++)
                ask(l, image[i * 5 % n], questions[test_rand(&rng) % N_QUESTIONS], "");
    } else if (!strncmp(queue, "questions", 9)) {
        size_t some = queue[9] ? strtoul(queue + 9, NULL, 10) : 50;
        char system[1200] = ",\"system\":\"";
        while (strlen(system) < 1100) strcat(system, "Look at the picture and answer shortly. ");
        strcat(system, "\"");
        for (size_t i = 0; i < some && i < n; i++)
            for (size_t k = 0; k < N_QUESTIONS; k++) ask(l, image[i], questions[k], system);
    } else if (!strcmp(queue, "captions")) {
        for (size_t i = 0; i < n; i++) ask(l, image[i], questions[test_rand(&rng) % 3], "");
    } else if (!strcmp(queue, "same")) {
        for (size_t i = 0; i < n; i++) ask(l, image[i], questions[0], "");
    } else {
        return false;
    }
    shuffle(l->at, l->n);
    return true;
}

int main(int argc, char **argv)
{
    static struct lines l;
    struct cmd_options o;
    struct err e;
    bool help;
    if (argc < 3) {
        fprintf(stderr,
                "usage: bench_order QUEUE|mixed|questions|captions|same MODEL [OPTION]...\n");
        return 2;
    }
    const char *path = argv[1];
    if (make(&l, argv[1])) {
        struct buf b = {0};
        for (size_t i = 0; i < l.n; i++)
            if (buf_addf(&b, &e, "%s\n", l.at[i])) return 1;
        path = test_path("queue.jsonl");
        test_write(path, b.data, b.len);
        buf_free(&b);
    }
    struct cmd_words words = {CMD_RUN, "run", "", argc - 3, argv + 3};
    enum status rc = cmd_parse(&o, &words, &help, &e);
    o.model = argv[2];
    o.operands = (struct cmd_list){&path, 1};
    if (!o.images.root && l.n) o.images.root = DEMO;
    if (!rc) rc = cmd_bench_orders(&o, &e);
    o.operands = (struct cmd_list){NULL, 0};
    cmd_options_free(&o);
    if (rc) fprintf(stderr, "bench_order: %s\n", e.text);
    return rc ? 1 : 0;
}
