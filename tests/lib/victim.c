/* fork, exec, wait. */
#include "tests/lib/victim.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

pid_t victim_start(const struct victim *v)
{
    pid_t pid = fork();
    if (pid) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const char *args[VICTIM_ARGS + 2] = {v->program};
    for (int i = 0; i < VICTIM_ARGS && v->args[i]; i++) args[i + 1] = v->args[i];
    for (int i = 0; i < 6 && v->env[i]; i++) putenv((char *)(size_t)v->env[i]);
    int null = open("/dev/null", O_RDONLY), log = open(v->log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (null < 0 || log < 0) _exit(126);
    dup2(null, 0);
    dup2(log, 1);
    dup2(log, 2);
    execv(v->program, (char **)(size_t)args);
    _exit(127);
}

static int code_of(int status)
{
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

int victim_wait(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return 125;
    return code_of(status);
}

int victim_poll(pid_t pid)
{
    int status;
    return waitpid(pid, &status, WNOHANG) == pid ? code_of(status) : VICTIM_RUNNING;
}

int victim_run(const struct victim *v)
{
    pid_t pid = victim_start(v);
    return pid < 0 ? 125 : victim_wait(pid);
}

/* ---- input ---- */

static const char *picture(int i)
{
    static const char *const names[] = {"circles", "belgium", "yes",   "moon",   "rings",
                                        "left",    "orange",  "japan", "circles"};
    return names[i % 9];
}

static void one_job(FILE *f, int i)
{
    static const char *const words[] = {"BUS", "TREE", "LAMP", "OPEN", "CAR"};
    switch (i % 9) {
    case 0:
        fprintf(f, "{\"id\":\"j%d\",\"image\":\"%s.png\",\"prompt\":\"Caption this image.\"", i,
                picture(i / 9));
        break;
    case 1:
        fprintf(f,
                "{\"id\":\"j%d\",\"prompt\":\"Reverse the word %s.\",\"temperature\":1,\"seed\":%d",
                i, words[i % 5], i);
        break;
    case 2:
        fprintf(f,
                "{\"custom_id\":\"j%d\",\"body\":{\"messages\":[{\"role\":\"user\",\"content\":"
                "\"Sort the numbers %d 9 %d 8.\"}],\"max_tokens\":16}}\n",
                i, i % 10, i % 7);
        return;
    case 3:
        fprintf(f,
                "{\"custom_id\":\"j%d\",\"params\":{\"max_tokens\":12,\"messages\":[{\"role\":"
                "\"user\",\"content\":\"What is %d - %d?\"}]}}\n",
                i, i, i % 9);
        return;
    case 4:
        fprintf(f,
                "{\"id\":\"j%d\",\"messages\":[{\"role\":\"user\",\"content\":\"<image>Describe "
                "this image.\"}],\"images\":[\"%s.png\"],\"max_tokens\":40}\n",
                i, picture(i / 9 + 3));
        return;
    case 5:
        fprintf(f,
                "{\"id\":\"j%d\",\"prompt\":\"What is %d - 1?\",\"response_format\":{\"type\":"
                "\"json_schema\",\"json_schema\":{\"name\":\"n\",\"schema\":{\"type\":\"object\","
                "\"properties\":{\"n\":{\"type\":\"integer\",\"maximum\":99}},\"required\":[\"n\"],"
                "\"additionalProperties\":false}}}",
                i, i);
        break;
    default:
        fprintf(f, "{\"id\":\"j%d\",\"prompt\":\"What is %d * 7? %s\",\"temperature\":0.%d", i, i,
                words[i % 5], i % 10);
    }
    fprintf(f, ",\"max_tokens\":%d}\n", 20 + i % 30);
}

void victim_jobs(const char *path, int n)
{
    FILE *f = fopen(path, "w");
    if (!f) abort();
    for (int i = 0; i < n - 3; i++) one_job(f, i);
    fprintf(f, "no JSON\n{\"id\":\"j0\",\"prompt\":\"again\"}\n"
               "{\"id\":\"gone\",\"image\":\"gone.png\",\"prompt\":\"x\"}\n");
    if (fclose(f)) abort();
}

/* ---- output ---- */

static void mask(char *text, const char *name)
{
    for (char *at = text; (at = strstr(at, name)); at++) {
        char *from = at + strlen(name), *to = from;
        while (isdigit((unsigned char)*to) || *to == '.') to++;
        *from = '0';
        memmove(from + 1, to, strlen(to) + 1);
    }
}

char *victim_output(const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    char *text = malloc((size_t)n + 2);
    if (!text) abort();
    size_t have = fread(text, 1, (size_t)n, f);
    text[have] = 0;
    fclose(f);
    mask(text, "\"created\":");
    mask(text, "\"prefill_s\":");
    mask(text, "\"decode_s\":");
    return text;
}

void victim_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}
