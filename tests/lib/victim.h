/* The real program as a child process: started with some words in its environment, killed, waited
 * for; and what tests of crashes and faults share about its input and output. */
#ifndef NS_VICTIM_H
#define NS_VICTIM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define VICTIM_KILLED  (-SIGKILL)
#define VICTIM_RUNNING 1000

#define VICTIM_ARGS 32

struct victim {
    const char *program;
    const char *env[6];            /* "NAME=value"; NULL ends */
    const char *args[VICTIM_ARGS]; /* without the program; NULL ends */
    const char *log;               /* gets both outputs */
};

pid_t victim_start(const struct victim *v);
/* Its exit code, or minus the signal that ended it. */
int victim_wait(pid_t pid);
/* The same at once; VICTIM_RUNNING. */
int victim_poll(pid_t pid);
/* Start, wait. */
int victim_run(const struct victim *v);

/* n jobs in all forms of input, of text and of the pictures in examples/images, short enough for
 * the demo model to do some twenty a second; one line is bad, one id is there twice, one picture is
 * missing. */
void victim_jobs(const char *path, int n);

/* The bytes of an output file with its times masked, malloc'ed; NULL when there is none. */
char *victim_output(const char *path);

void victim_ms(long ms); /* sleeps */

#endif
